#include "common/base.h"

#include "common/clock.h"
#include "common/layout.h"
#include "tests/unit/support.h"

static struct settings fake_settings(void)
{
    static char run[128], data[128];
    (void)snprintf(run, sizeof run, "%s/run", tmp_dir);
    (void)snprintf(data, sizeof data, "%s/deep/data", tmp_dir);
    return (struct settings){.run_dir = run, .data_dir = data};
}

static void places(void **state)
{
    (void)state;
    char run[] = "/r", data[] = "/d";
    struct settings s = {.run_dir = run, .data_dir = data};
    _cleanup_buf_ struct buf b = BUF_INIT(1000);
    layout_doorbell(&s, &b);
    buf_addc(&b, ' ');
    layout_reply(&s, "n", &b);
    buf_addc(&b, ' ');
    layout_socket_dir(&s, "box", &b);
    buf_addc(&b, ' ');
    layout_workspace(&s, "box", &b);
    buf_addc(&b, ' ');
    layout_run_log(&s, "0123456789abcdefghjkmnpqyz", &b);
    buf_addc(&b, ' ');
    layout_trash(&s, &b);
    assert_string_equal(b.p, "/r/doorbell /r/reply/n /r/sb/box /d/box/workspace "
                             "/d/.runs/yz/0123456789abcdefghjkmnpqyz.log /d/.trash");
}

static void create_makes_private_directories(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        mode_t mode;
    } want[] = {{"run", S_IFDIR | 0711},
                {"run/reply", S_IFDIR | 0700},
                {"run/sb", S_IFDIR | 0700},
                {"run/doorbell", S_IFIFO | 0600},
                {"deep/data", S_IFDIR | 0700},
                {"deep/data/.runs", S_IFDIR | 0700},
                {"deep/data/.trash", S_IFDIR | 0700}};
    struct err e = ERR_INIT;
    struct settings s = fake_settings();
    for (int twice = 0; twice < 2; twice++) {
        assert_int_equal(layout_create(&s, &e), 0);
        for (size_t i = 0; i < ARRAY_LEN(want); i++) {
            struct stat st;
            assert_int_equal(lstat(tmp_path(want[i].path), &st), 0);
            assert_int_equal(st.st_mode, want[i].mode);
        }
    }
}

static void create_fails_when_the_name_is_taken(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct settings s = fake_settings();
    tmp_write(tmp_path("run"), "a file", 0600);
    assert_int_equal(layout_create(&s, &e), -1);
    assert_non_null(strstr(e.msg, "/run"));
}

static void ulids_are_valid_and_different(void **state)
{
    (void)state;
    enum { N = 2000 };
    static char ids[N][ULID_LEN + 1];
    for (int i = 0; i < N; i++) {
        ulid_new(ids[i]);
        assert_true(ulid_valid(ids[i]));
    }
    qsort(ids, N, sizeof ids[0], (int (*)(const void *, const void *))strcmp);
    for (int i = 1; i < N; i++)
        assert_string_not_equal(ids[i - 1], ids[i]);
}

static void ulids_sort_by_time(void **state)
{
    (void)state;
    char a[ULID_LEN + 1], b[ULID_LEN + 1];
    for (int i = 0; i < 5; i++) {
        ulid_new(a);
        for (int64_t t = clock_real_ms(); clock_real_ms() <= t;)
            ;
        ulid_new(b);
        assert_true(strcmp(a, b) < 0);
    }
}

static void ulid_shape(void **state)
{
    (void)state;
    assert_true(ulid_valid("01hzzzzzzzzzzzzzzzzzzzzzzz"));
    assert_false(ulid_valid(""));
    assert_false(ulid_valid("01hzzzzzzzzzzzzzzzzzzzzzz"));
    assert_false(ulid_valid("01hzzzzzzzzzzzzzzzzzzzzzzzz"));
    assert_false(ulid_valid("01HZZZZZZZZZZZZZZZZZZZZZZZ"));
    assert_false(ulid_valid("01hzzzzzzzzzzzzzzzzzzzzzzi"));
    assert_false(ulid_valid("../../../../../../etc/passw"));
    assert_false(ulid_valid("../../../../../etc/passwd.."));
}

static void bell(void **state)
{
    (void)state;
    (void)signal(SIGPIPE, SIG_IGN);
    char path[128];
    (void)snprintf(path, sizeof path, "%s/bell", tmp_dir);
    assert_int_equal(bell_ring(path, "x", 1), BELL_NOBODY); /* no file */
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(bell_ring(path, "x", 1), BELL_NOBODY); /* no reader */
    _cleanup_close_ int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    assert_int_equal(bell_ring(path, "12345678", 8), BELL_RUNG);
    char got[16];
    assert_int_equal(read(fd, got, sizeof got), 8);
    assert_memory_equal(got, "12345678", 8);
    for (int i = 0; i < 20000; i++) /* more than a pipe holds: full counts as rung */
        assert_int_equal(bell_ring(path, "12345678", 8), BELL_RUNG);
}

static void bell_does_not_follow_links(void **state)
{
    (void)state;
    char target[128];
    (void)snprintf(target, sizeof target, "%s/victim", tmp_dir);
    tmp_write(target, "", 0600);
    assert_int_equal(symlink(target, tmp_path("link")), 0);
    assert_int_equal(bell_ring(tmp_path("link"), "x", 1), BELL_NOBODY);
    struct stat st;
    assert_int_equal(stat(target, &st), 0);
    assert_int_equal(st.st_size, 0);
}

static void a_missing_job_is_unknown_or_expired(void **state)
{
    (void)state;
    const struct settings s = {.job_log_retention = 60};
    struct err e = ERR_INIT;
    char id[ULID_LEN + 1];
    ulid_new(id);
    assert_in_range(ulid_time(id), clock_real_ms() - 60000, clock_real_ms());
    assert_int_equal(job_missing(id, &s, &e), -1);
    assert_string_equal(err_code(&e), "not_found");
    ulid_floor(1000, id);
    assert_int_equal(ulid_time(id), 1000);
    assert_int_equal(job_missing(id, &s, &e), -1);
    assert_string_equal(err_code(&e), "expired");
    assert_non_null(strstr(e.msg, "1970-01-01T00:00:01Z"));
    assert_int_equal(job_missing("no id", &s, &e), -1);
    assert_string_equal(err_code(&e), "not_found");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places),
        cmocka_unit_test_setup_teardown(create_makes_private_directories, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(create_fails_when_the_name_is_taken, tmp_setup,
                                        tmp_teardown),
        cmocka_unit_test(ulids_are_valid_and_different),
        cmocka_unit_test(ulids_sort_by_time),
        cmocka_unit_test(ulid_shape),
        cmocka_unit_test(a_missing_job_is_unknown_or_expired),
        cmocka_unit_test_setup_teardown(bell, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(bell_does_not_follow_links, tmp_setup, tmp_teardown),
    };
    return cmocka_run_group_tests_name("layout", tests, NULL, NULL);
}
