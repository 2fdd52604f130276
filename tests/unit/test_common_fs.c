#include "common/base.h"

#include "common/fs.h"
#include "tests/unit/support.h"

static mode_t mode_of(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 ? st.st_mode : 0;
}

static void makes_parents(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    assert_int_equal(fs_mkdirs(tmp_path("a/b/c"), 0700, &e), 0);
    assert_int_equal(mode_of(tmp_path("a/b/c")) & 07777, 0700);
    assert_int_equal(mode_of(tmp_path("a/b")) & 07777, 0755);
    assert_int_equal(fs_mkdirs(tmp_path("a/b/c"), 0755, &e), 0); /* again: kept as it is */
    assert_int_equal(mode_of(tmp_path("a/b/c")) & 07777, 0700);
    assert_int_equal(fs_mkdirs(tmp_path("x//y/"), 0700, &e), 0);
    assert_true(S_ISDIR(mode_of(tmp_path("x/y"))));
    assert_int_equal(fs_mkdirs_for(tmp_path("p/q/file"), &e), 0);
    assert_true(S_ISDIR(mode_of(tmp_path("p/q"))));
    assert_int_equal(mode_of(tmp_path("p/q/file")), 0);
}

static void a_file_is_no_directory(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    tmp_write(tmp_path("f"), "x", 0600);
    assert_int_equal(fs_mkdirs(tmp_path("f"), 0700, &e), -1);
    assert_non_null(strstr(e.msg, "/f"));
    assert_int_equal(fs_mkdirs(tmp_path("f/g"), 0700, &e), -1);
}

static void reads_files_within_the_limit(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_buf_ struct buf b = BUF_INIT(5);
    tmp_write(tmp_path("five"), "12345", 0600);
    tmp_write(tmp_path("six"), "123456", 0600);
    assert_int_equal(fs_read(tmp_path("five"), &b, &e), 0);
    assert_string_equal(b.p, "12345");
    buf_clear(&b);
    assert_int_equal(fs_read(tmp_path("six"), &b, &e), -1);
    assert_int_equal(e.kind, ERR_LIMIT);
    assert_int_equal(fs_read(tmp_path("none"), &b, &e), -1);
    assert_int_equal(e.sys, ENOENT);
}

static void secrets_must_be_private(void **state)
{
    (void)state;
    static const mode_t open_modes[] = {0640, 0604, 0620, 0601};
    struct err e = ERR_INIT;
    _cleanup_buf_ struct buf b = BUF_INIT(50);
    for (size_t i = 0; i < ARRAY_LEN(open_modes); i++) {
        tmp_write(tmp_path("s"), "secret", open_modes[i]);
        assert_int_equal(fs_read_secret(tmp_path("s"), &b, &e), -1);
        assert_int_equal(e.kind, ERR_FORBIDDEN);
        assert_int_equal(b.len, 0);
    }
    tmp_write(tmp_path("s"), "secret", 0400);
    assert_int_equal(fs_read_secret(tmp_path("s"), &b, &e), 0);
    assert_string_equal(b.p, "secret");
}

static void fifos(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    assert_int_equal(fs_fifo(tmp_path("bell"), &e), 0);
    assert_true(S_ISFIFO(mode_of(tmp_path("bell"))));
    assert_int_equal(mode_of(tmp_path("bell")) & 07777, 0600);
    assert_int_equal(fs_fifo(tmp_path("bell"), &e), 0);
    tmp_write(tmp_path("file"), "", 0600);
    assert_int_equal(fs_fifo(tmp_path("file"), &e), -1);
    char target[128];
    (void)snprintf(target, sizeof target, "%s/bell", tmp_dir);
    assert_int_equal(symlink(target, tmp_path("link")), 0);
    assert_int_equal(fs_fifo(tmp_path("link"), &e), -1);
}

static void writes_everything_through_a_full_pipe(void **state)
{
    (void)state;
    int p[2];
    assert_int_equal(pipe(p), 0);
    enum { N = 300000 };
    pid_t pid = fork();
    if (pid == 0) {
        struct err e;
        char *data = xcalloc(1, N);
        close(p[0]);
        _exit(fs_write_all(p[1], data, N, &e) == 0 ? 0 : 1);
    }
    close(p[1]);
    size_t got = 0;
    char chunk[1000];
    ssize_t n;
    while ((n = read(p[0], chunk, sizeof chunk)) > 0)
        got += (size_t)n;
    close(p[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(got, N);
}

static void write_to_nobody_is_an_error(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    int p[2];
    (void)signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pipe(p), 0);
    close(p[0]);
    assert_int_equal(fs_write_all(p[1], "x", 1, &e), -1);
    assert_int_equal(e.sys, EPIPE);
    close(p[1]);
}

static void program_directory(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    _cleanup_buf_ struct buf b = BUF_INIT(PATH_MAX);
    assert_int_equal(fs_program_dir(&b, &e), 0);
    buf_adds(&b, "/test_common_fs");
    assert_int_equal(access(b.p, X_OK), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(makes_parents, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(a_file_is_no_directory, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(reads_files_within_the_limit, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(secrets_must_be_private, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(fifos, tmp_setup, tmp_teardown),
        cmocka_unit_test(writes_everything_through_a_full_pipe),
        cmocka_unit_test(write_to_nobody_is_an_error),
        cmocka_unit_test(program_directory),
    };
    return cmocka_run_group_tests_name("fs", tests, NULL, NULL);
}
