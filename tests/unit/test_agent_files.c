#include "common/base.h"

#include "tests/unit/agent_client.h"

static char data[5000000], back[sizeof data + 1];
static size_t back_len;
static uint64_t failed_with;
static char failed_text[1200];

static void note_failure(void)
{
    failed_with = got.h.type == WIRE_FAILED ? got_number(WT_ERRNO) : 0;
    (void)snprintf(failed_text, sizeof failed_text, "%.1100s",
                   failed_with ? got_text(WT_TEXT) : "");
}

/* More fields may be put before these. True when the operation succeeded; got is the FILE_STAT. */
static bool write_file(const char *path, const char *p, size_t n)
{
    uint32_t stream = ++agent.stream;
    put_text(WT_PATH, path);
    send_request(WIRE_FILE_WRITE, stream);
    for (size_t at = 0; at < n; at += WIRE_MAX_PAYLOAD)
        send_frame(WIRE_FILE_DATA, 0, stream, p + at, MIN(n - at, WIRE_MAX_PAYLOAD));
    send_frame(WIRE_FILE_DATA, WIRE_F_EOF, stream, NULL, 0);
    next_frame();
    note_failure();
    return got.h.type == WIRE_FILE_STAT;
}

static bool write_text(const char *path, const char *text)
{
    return write_file(path, text, strlen(text));
}

static bool read_file(const char *path)
{
    uint32_t stream = ++agent.stream;
    put_text(WT_PATH, path);
    send_request(WIRE_FILE_READ, stream);
    next_frame();
    note_failure();
    back_len = 0;
    if (failed_with)
        return false;
    assert_int_equal(got.h.type, WIRE_FILE_STAT);
    do {
        next_frame();
        assert_int_equal(got.h.type, WIRE_FILE_DATA);
        assert_true(back_len + got.h.length < sizeof back);
        memcpy(back + back_len, got.p, got.h.length);
        back_len += got.h.length;
    } while (!(got.h.flags & WIRE_F_EOF));
    back[back_len] = 0;
    return true;
}

static void written_files_are_read_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = (char)(i * 2654435761u >> 13);
    assert_true(write_file(tmp_path("big"), data, sizeof data));
    assert_int_equal(got_number(WT_SIZE), sizeof data);
    assert_int_equal(got_number(WT_FTYPE), 'f');
    assert_string_equal(got_text(WT_PATH), tmp_path("big"));
    assert_true(read_file(tmp_path("big")));
    assert_int_equal(back_len, sizeof data);
    assert_memory_equal(back, data, sizeof data);
    assert_true(write_text(tmp_path("empty"), ""));
    assert_true(read_file(tmp_path("empty")));
    assert_int_equal(back_len, 0);
}

static void a_part_of_a_file(void **state)
{
    (void)state;
    static const struct {
        int line;
        uint64_t offset, size;
        const char *want;
    } rows[] = {
        {ROW, 0, 4, "0123"}, {ROW, 8, 100, "89"}, {ROW, 3, 1, "3"},
        {ROW, 10, 5, ""},    {ROW, 99, 5, ""},    {ROW, 0, 0, ""},
    };
    assert_true(write_text(tmp_path("f"), "0123456789"));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        put_number(WT_OFFSET, rows[i].offset);
        put_number(WT_SIZE, rows[i].size);
        row_true(rows[i].line, read_file(tmp_path("f")));
        row_true(rows[i].line, !strcmp(back, rows[i].want));
    }
    assert_true(read_file("/proc/self/status")); /* its size claims to be 0 */
    assert_non_null(strstr(back, "sandbox-agent"));
}

static void what_cannot_be_read_or_written(void **state)
{
    (void)state;
    static const struct {
        int line;
        const char *name;
        int read_error, write_error;
        const char *text;
    } rows[] = {
        {ROW, "fifo", EINVAL, EINVAL, "a FIFO"},
        {ROW, "link-to-fifo", EINVAL, EINVAL, "a FIFO"},
        {ROW, "dir", EISDIR, EISDIR, "directory"},
        {ROW, "loop", ELOOP, ELOOP, "loop"},
        {ROW, "no/parent", ENOENT, ENOENT, "no/parent"},
        {ROW, "plain/below", ENOTDIR, ENOTDIR, "plain/below"},
        {ROW, "../../dev/zero", EINVAL, EINVAL, "a character device"},
        {ROW, WIRE_SOCKET, EINVAL, EINVAL, "a socket"},
    };
    assert_int_equal(mkfifo(tmp_path("fifo"), 0600), 0);
    assert_int_equal(symlink("fifo", tmp_path("link-to-fifo")), 0);
    assert_int_equal(symlink("loop", tmp_path("loop")), 0);
    assert_int_equal(mkdir(tmp_path("dir"), 0755), 0);
    tmp_write(tmp_path("plain"), "x", 0644);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t start = now_ms();
        row_true(rows[i].line, !read_file(tmp_path(rows[i].name)));
        row_true(rows[i].line, failed_with == (uint64_t)rows[i].read_error);
        row_true(rows[i].line, strstr(failed_text, rows[i].text) != NULL);
        for (int append = 0; append < 2; append++) {
            put_number(WT_APPEND, (uint64_t)append);
            row_true(rows[i].line, !write_text(tmp_path(rows[i].name), "data"));
            row_true(rows[i].line, failed_with == (uint64_t)rows[i].write_error);
        }
        row_true(rows[i].line, now_ms() - start < 1000);
    }
}

static mode_t mode_of(const char *name)
{
    struct stat st;
    assert_int_equal(stat(tmp_path(name), &st), 0);
    return st.st_mode & 07777;
}

static void modes_and_owners(void **state)
{
    (void)state;
    struct stat st;
    assert_true(write_text(tmp_path("new"), "a"));
    assert_int_equal(mode_of("new"), 0644);
    put_number(WT_MODE, 0750);
    assert_true(write_text(tmp_path("script"), "a"));
    assert_int_equal(mode_of("script"), 0750);
    assert_int_equal(chown(tmp_path("script"), 33, 44), 0);
    assert_int_equal(chmod(tmp_path("script"), 04755), 0);
    put_number(WT_MODE, 0600);
    assert_true(write_text(tmp_path("script"), "b"));
    assert_int_equal(mode_of("script"), 04755);
    assert_int_equal(stat(tmp_path("script"), &st), 0);
    assert_true(st.st_uid == 33 && st.st_gid == 44);
}

static void parents_are_made_when_asked(void **state)
{
    (void)state;
    assert_false(write_text(tmp_path("a/b/c/f"), "x"));
    assert_int_equal(failed_with, ENOENT);
    put_number(WT_PARENTS, 1);
    assert_true(write_text(tmp_path("a/b/c/f"), "x"));
    assert_true(read_file(tmp_path("a/b/c/f")));
    assert_string_equal(back, "x");
}

static void links_are_followed_as_commands_do(void **state)
{
    (void)state;
    char target[64];
    assert_int_equal(mkdir(tmp_path("dir"), 0755), 0);
    assert_int_equal(symlink("dir/new", tmp_path("link")), 0);
    assert_int_equal(symlink("link", tmp_path("link2")), 0);
    assert_true(write_text(tmp_path("link2"), "through"));
    assert_string_equal(got_text(WT_PATH), tmp_path("dir/new"));
    ssize_t n = readlink(tmp_path("link"), target, sizeof target); /* still a link */
    assert_int_equal(n, 7);
    assert_true(read_file(tmp_path("link")));
    assert_string_equal(back, "through");
}

static void appending(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        put_number(WT_APPEND, 1);
        assert_true(write_text(tmp_path("log"), "line\n"));
    }
    assert_int_equal(got_number(WT_SIZE), 15);
    assert_int_equal(mode_of("log"), 0644);
}

/* Entries in the temporary directory, without the socket. */
static long entries(void)
{
    char command[200];
    (void)snprintf(command, sizeof command, "ls -A %s | grep -vc sock", tmp_dir);
    run(command);
    return strtol(res.out, NULL, 10);
}

static void a_broken_write_changes_nothing(void **state)
{
    (void)state;
    assert_true(write_text(tmp_path("f"), "old"));
    uint32_t stream = ++agent.stream;
    put_text(WT_PATH, tmp_path("f"));
    send_request(WIRE_FILE_WRITE, stream);
    send_frame(WIRE_FILE_DATA, 0, stream, "new", 3);
    send_frame(WIRE_PING, 0, 0, NULL, 0);
    next_frame();
    assert_int_equal(entries(), 2); /* with the temporary file */
    reconnect();
    assert_int_equal(entries(), 1);
    assert_true(read_file(tmp_path("f")));
    assert_string_equal(back, "old");
}

static void a_mounted_file_is_overwritten(void **state)
{
    (void)state;
    char command[400];
    tmp_write(tmp_path("source"), "a longer old text", 0644);
    tmp_write(tmp_path("hosts"), "", 0644);
    (void)snprintf(command, sizeof command, "mount --bind %s/source %s/hosts", tmp_dir, tmp_dir);
    run(command);
    assert_int_equal(res.code, 0);
    assert_true(write_text(tmp_path("hosts"), "new"));
    assert_true(read_file(tmp_path("hosts")));
    assert_string_equal(back, "new");
    assert_true(read_file(tmp_path("source")));
    assert_string_equal(back, "new");
    assert_int_equal(entries(), 2);
}

/* --- listing --- */

static char listed[2000000], cursor[PATH_MAX];
static unsigned listed_count;

/* One page, its names appended to `listed`, each with a newline; false after the last page. */
static bool list_page(const char *path, uint64_t size, bool recursive)
{
    uint32_t stream = ++agent.stream;
    put_text(WT_PATH, path);
    put_number(WT_SIZE, size);
    put_number(WT_RECURSIVE, recursive);
    if (cursor[0])
        put_text(WT_CURSOR, cursor);
    send_request(WIRE_FILE_LIST, stream);
    uint64_t page = 0;
    for (next_frame(); got.h.type == WIRE_FILE_ENTRY; next_frame(), page++) {
        size_t n = strlen(listed);
        (void)snprintf(listed + n, sizeof listed - n, "%s\n", got_text(WT_NAME));
    }
    note_failure();
    listed_count += (unsigned)page;
    assert_true(page <= size);
    (void)snprintf(cursor, sizeof cursor, "%.4000s", failed_with ? "" : got_text(WT_CURSOR));
    return cursor[0];
}

static const char *list_all(const char *path, uint64_t size, bool recursive)
{
    listed[0] = cursor[0] = 0;
    listed_count = 0;
    while (list_page(path, size, recursive))
        continue;
    return listed;
}

static void listings_are_sorted_and_paged(void **state)
{
    (void)state;
    static const char *const names[] = {"t/b",   "t/a",   "t/B",    "t/d/x",
                                        "t/d/y", "t/d-e", "t/\xff", "t/a\nb"};
    static const char flat[] = "B\na\na\nb\nb\nd\nd-e\n\xff\n";
    static const char deep[] = "B\na\na\nb\nb\nd\nd/x\nd/y\nd-e\n\xff\n";
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        put_number(WT_PARENTS, 1);
        assert_true(write_text(tmp_path(names[i]), "x"));
    }
    for (uint64_t size = 1; size < 9; size++) {
        assert_string_equal(list_all(tmp_path("t"), size, false), flat);
        assert_string_equal(list_all(tmp_path("t"), size, true), deep);
    }
    list_all(tmp_path("none"), 10, false);
    assert_int_equal(failed_with, ENOENT);
    list_all(tmp_path("t/a"), 10, false);
    assert_int_equal(failed_with, ENOTDIR);
}

static void listings_tell_about_each_entry(void **state)
{
    (void)state;
    assert_int_equal(mkdir(tmp_path("t"), 0755), 0);
    assert_int_equal(symlink("/etc", tmp_path("t/link")), 0);
    put_text(WT_PATH, tmp_path("t"));
    put_number(WT_RECURSIVE, 1); /* does not follow */
    send_request(WIRE_FILE_LIST, ++agent.stream);
    next_frame();
    assert_int_equal(got.h.type, WIRE_FILE_ENTRY);
    assert_int_equal(got_number(WT_FTYPE), 'l');
    assert_string_equal(got_text(WT_TARGET), "/etc");
    next_frame();
    assert_int_equal(got.h.type, WIRE_FILE_END);
}

static void a_large_directory_is_paged(void **state)
{
    (void)state;
    char command[200];
    uint64_t start = now_ms();
    (void)snprintf(command, sizeof command, "mkdir %s/many; cd %s/many; seq 1 30000 | xargs touch",
                   tmp_dir, tmp_dir);
    run(command);
    assert_int_equal(res.code, 0);
    list_all(tmp_path("many"), 5000, false);
    assert_int_equal(listed_count, 30000);
    char previous[32] = "";
    for (char *p = listed, *end; (end = strchr(p, '\n')); p = end + 1) {
        *end = 0;
        assert_true(strcmp(previous, p) < 0);
        (void)snprintf(previous, sizeof previous, "%.31s", p);
    }
    assert_true(now_ms() - start < 20000);
}

static void deep_trees_end_somewhere(void **state)
{
    (void)state;
    char command[200];
    (void)snprintf(command, sizeof command,
                   "cd %s; i=0; while [ $i -lt 100 ]; do mkdir d; cd d; i=$((i+1)); done", tmp_dir);
    run(command);
    list_all(tmp_path("d"), 1000, true);
    assert_true(listed_count >= 60 && listed_count <= 99);
}

int main(int argc, char **argv)
{
    (void)argc;
    agent_find(argv[0]);
#define CASE(f) cmocka_unit_test_setup_teardown(f, agent_setup, agent_teardown)
    const struct CMUnitTest tests[] = {
        CASE(written_files_are_read_back),
        CASE(a_part_of_a_file),
        CASE(what_cannot_be_read_or_written),
        CASE(modes_and_owners),
        CASE(parents_are_made_when_asked),
        CASE(links_are_followed_as_commands_do),
        CASE(appending),
        CASE(a_broken_write_changes_nothing),
        CASE(a_mounted_file_is_overwritten),
        CASE(listings_are_sorted_and_paged),
        CASE(listings_tell_about_each_entry),
        CASE(a_large_directory_is_paged),
        CASE(deep_trees_end_somewhere),
    };
    return cmocka_run_group_tests_name("agent: files", tests, NULL, NULL);
}
