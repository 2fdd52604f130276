#include "common/base.h"

#include "jobs-runner/housekeeper.h"
#include "tests/unit/support.h"

static int open_dir(const char *name)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", tmp_dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    return fd;
}

static void put_file(int dir, const char *name)
{
    _cleanup_close_ int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0);
    assert_true(fd >= 0);
}

/* rmdir succeeds on an empty directory only. */
static void assert_empty(const char *name)
{
    char path[256];
    (void)snprintf(path, sizeof path, "%s/%s", tmp_dir, name);
    assert_int_equal(rmdir(path), 0);
}

static void a_tree_deeper_than_any_path_goes(void **state)
{
    (void)state;
    _cleanup_close_ int trash = open_dir("trash");
    int at = fcntl(trash, F_DUPFD_CLOEXEC, 3);
    for (int i = 0; i < 3000; i++) {
        assert_int_equal(mkdirat(at, "directory", 0700), 0);
        int next = openat(at, "directory", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(next >= 0);
        (void)close(at);
        at = next;
        put_file(at, "file");
    }
    (void)close(at);
    trash_empty(trash);
    assert_empty("trash");
}

static void links_are_removed_and_never_followed(void **state)
{
    (void)state;
    _cleanup_close_ int trash = open_dir("trash");
    _cleanup_close_ int kept = open_dir("kept");
    char target[256];
    (void)snprintf(target, sizeof target, "%s/kept", tmp_dir);
    put_file(kept, "canary");
    assert_int_equal(mkdirat(trash, "inner", 0700), 0);
    assert_int_equal(symlinkat(target, trash, "top"), 0);
    assert_int_equal(symlinkat(target, trash, "inner/link"), 0);
    assert_int_equal(symlinkat("..", trash, "inner/up"), 0);
    assert_int_equal(mkfifoat(trash, "inner/fifo", 0600), 0);
    assert_int_equal(mkdirat(trash, "inner/locked", 0), 0);
    trash_empty(trash);
    assert_empty("trash");
    assert_int_equal(faccessat(kept, "canary", F_OK, 0), 0);
}

static void many_entries_go(void **state)
{
    (void)state;
    _cleanup_close_ int trash = open_dir("trash");
    for (int i = 0; i < 5000; i++) {
        char name[300];
        (void)snprintf(name, sizeof name, "%0*d", i % 200 + 5, i);
        put_file(trash, name);
    }
    trash_empty(trash);
    assert_empty("trash");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_tree_deeper_than_any_path_goes, tmp_setup, tmp_teardown),
        cmocka_unit_test_setup_teardown(links_are_removed_and_never_followed, tmp_setup,
                                        tmp_teardown),
        cmocka_unit_test_setup_teardown(many_entries_go, tmp_setup, tmp_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
