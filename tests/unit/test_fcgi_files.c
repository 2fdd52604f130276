#include "common/base.h"

#include "fcgi/files.h"
#include "tests/unit/support.h"

#include <pthread.h>

static int ws = -1;

static int setup(void **state)
{
    if (tmp_setup(state) < 0 || mkdir(tmp_path("ws"), 0755) < 0 || mkdir(tmp_path("out"), 0755) < 0)
        return -1;
    tmp_write(tmp_path("out/secret"), "secret", 0600);
    ws = open(tmp_path("ws"), O_PATH | O_DIRECTORY | O_CLOEXEC);
    return ws >= 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)close(ws);
    return tmp_teardown(state);
}

static int put(const char *path, const char *text, bool append, int mode, struct err *e)
{
    int64_t size;
    struct files_write w = {.data = text, .n = strlen(text), .append = append, .mode = mode};
    return files_write(ws, path, &w, &size, e);
}

static void write_ok(const char *path, const char *text)
{
    struct err e = ERR_INIT;
    if (put(path, text, false, -1, &e) != FILES_OK)
        fail_msg("%s: %s", path, e.msg);
}

/* FILES_OK and the content in `out`, or what files_open returned. */
static int get(const char *path, struct buf *out, struct err *e)
{
    struct stat st;
    _cleanup_close_ int fd = -1;
    int r = files_open(ws, path, false, &fd, &st, e);
    char piece[256];
    buf_clear(out);
    for (ssize_t n; r == FILES_OK && (n = read(fd, piece, sizeof piece)) > 0;)
        buf_add(out, piece, (size_t)n);
    return r;
}

static void expect(const char *path, const char *text)
{
    struct err e = ERR_INIT;
    struct buf out = BUF_INIT(1 << 20);
    if (get(path, &out, &e) != FILES_OK)
        fail_msg("%s: %s", path, e.msg);
    assert_string_equal(out.p, text);
    buf_release(&out);
}

static const struct {
    int line;
    const char *arg, *rel; /* NULL: elsewhere */
} paths[] = {
    {ROW, "a", "a"},
    {ROW, "", "."},
    {ROW, ".", "."},
    {ROW, "/workspace", "."},
    {ROW, "/workspace/", "."},
    {ROW, "//workspace//a", "a"},
    {ROW, "/workspace/a/b", "a/b"},
    {ROW, "/workspacex/a", NULL},
    {ROW, "/etc/passwd", NULL},
    {ROW, "/", NULL},
    {ROW, "../a", "../a"},
    {ROW, "~", "~"},
};

static void path_rules(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        struct buf rel = BUF_INIT(PATH_MAX);
        int r = files_path(paths[i].arg, &rel, &e);
        row_true(paths[i].line, r == (paths[i].rel ? FILES_OK : FILES_ELSEWHERE));
        row_true(paths[i].line, !paths[i].rel || streq(rel.p, paths[i].rel));
        buf_release(&rel);
    }
    struct buf rel = BUF_INIT(PATH_MAX), longest = BUF_INIT(PATH_MAX * 2);
    for (int i = 0; i < PATH_MAX; i++)
        buf_addc(&longest, 'a');
    assert_int_equal(files_path(longest.p, &rel, &e), -1);
    buf_release(&longest);
}

static const struct {
    int line;
    const char *raw, *shown;
    bool escaped;
} escapes[] = {
    {ROW, "plain", "plain", false},
    {ROW, "back\\slash\\x41", "back\\slash\\x41", false},
    {ROW, "\xe6\x97\xa5", "\xe6\x97\xa5", false},
    {ROW, "a\nb", "a\nb", false},
    {ROW, "caf\xe9", "caf\\xe9", true},
    {ROW, "\xff\\x", "\\xff\\\\x", true},
    {ROW, "\xe6\x97\xa5\xff", "\xe6\x97\xa5\\xff", true},
    {ROW, "\xed\xa0\x80", "\\xed\\xa0\\x80", true},
    {ROW, "\xe6\x97", "\\xe6\\x97", true},
};

static void names_round_trip(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(escapes); i++) {
        struct buf shown = BUF_INIT(200), back = BUF_INIT(200);
        row_true(escapes[i].line, files_escape(escapes[i].raw, &shown) == escapes[i].escaped);
        row_true(escapes[i].line, streq(shown.p, escapes[i].shown));
        if (escapes[i].escaped) {
            row_true(escapes[i].line, files_unescape(shown.p, &back));
            row_true(escapes[i].line, streq(back.p, escapes[i].raw));
        }
        buf_release(&shown);
        buf_release(&back);
    }
}

static void writes_and_reads(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct stat st;
    write_ok("a.txt", "one");
    write_ok("a.txt", "two");
    write_ok("d/e/f/g.txt", "deep");
    expect("a.txt", "two");
    expect("d/./e/../e/f/g.txt", "deep");
    assert_int_equal(put("a.txt", "+", true, -1, &e), FILES_OK);
    assert_int_equal(put("new.txt", "+", true, -1, &e), FILES_OK);
    expect("a.txt", "two+");
    expect("new.txt", "+");
    assert_int_equal(put("a.txt", "x", false, 0755, &e), FILES_OK);
    write_ok("a.txt", "y");
    assert_int_equal(fstatat(ws, "a.txt", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0755); /* kept */
    assert_int_equal(fstatat(ws, "new.txt", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0644);
}

static void odd_names_are_names(void **state)
{
    (void)state;
    static const char *const odd[] = {
        "-rf",      " lead", "trail ", "a\nb",   "q'\"$(id)`;",
        "*",        "~",     "...",    "a -> b", "\xe6\x97\xa5\xe6\x9c\xac",
        "e\xcc\x81"};
    for (size_t i = 0; i < ARRAY_LEN(odd); i++) {
        write_ok(odd[i], odd[i]);
        expect(odd[i], odd[i]);
    }
}

static void names_of_bytes_are_found_by_their_escapes(void **state)
{
    (void)state;
    int fd = openat(ws, "caf\xe9", O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    (void)close(fd);
    write_ok("caf\\xe9", "bytes");
    expect("caf\\xe9", "bytes");
    assert_int_equal(faccessat(ws, "caf\\xe9", F_OK, 0), -1); /* no second file was made */
    write_ok("new\\xe9", "literal");
    assert_int_equal(faccessat(ws, "new\\xe9", F_OK, 0), 0);
}

static void nothing_leads_outside(void **state)
{
    (void)state;
    static const char *const ways[] = {"leak/secret",     "abs",  "up",       "../out/secret",
                                       "d/up/out/secret", "loop", "leak/new", "dangling"};
    struct err e = ERR_INIT;
    struct buf out = BUF_INIT(1000);
    assert_int_equal(mkdirat(ws, "d", 0755), 0);
    assert_int_equal(symlinkat(tmp_path("out"), ws, "leak"), 0);
    assert_int_equal(symlinkat(tmp_path("out/secret"), ws, "abs"), 0);
    assert_int_equal(symlinkat("../out/secret", ws, "up"), 0);
    assert_int_equal(symlinkat("../..", ws, "d/up"), 0);
    assert_int_equal(symlinkat("loop", ws, "loop"), 0);
    assert_int_equal(symlinkat(tmp_path("out/made"), ws, "dangling"), 0);
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        assert_int_equal(get(ways[i], &out, &e), FILES_ELSEWHERE);
        assert_int_equal(put(ways[i], "evil", false, -1, &e), FILES_ELSEWHERE);
        assert_int_equal(put(ways[i], "evil", true, -1, &e), FILES_ELSEWHERE);
    }
    assert_int_equal(access(tmp_path("out/made"), F_OK), -1);
    assert_int_equal(access(tmp_path("out/new"), F_OK), -1);
    struct stat st;
    assert_int_equal(stat(tmp_path("out/secret"), &st), 0);
    assert_int_equal(st.st_size, 6);
    buf_release(&out);
}

static void links_inside_work(void **state)
{
    (void)state;
    write_ok("real/x", "1");
    assert_int_equal(symlinkat("real", ws, "link"), 0);
    expect("link/x", "1");
    write_ok("link/y", "2");
    expect("real/y", "2");
    struct err e = ERR_INIT;
    assert_int_equal(symlinkat("real/x", ws, "file"), 0);
    expect("file", "1");
    assert_int_equal(put("file", "3", false, -1, &e), FILES_ELSEWHERE); /* its target is meant */
}

static void no_fifo_hangs(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct buf out = BUF_INIT(1000);
    assert_int_equal(mkfifoat(ws, "fifo", 0666), 0);
    (void)alarm(5);
    assert_int_equal(get("fifo", &out, &e), -1);
    assert_string_equal(err_code(&e), "not_a_file");
    assert_int_equal(put("fifo", "x", false, -1, &e), -1);
    assert_int_equal(put("fifo", "x", true, -1, &e), -1);
    assert_int_equal(put("fifo/x", "x", true, -1, &e), -1);
    (void)alarm(0);
    buf_release(&out);
}

static void errors_say_what_is_wrong(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct buf out = BUF_INIT(1000);
    write_ok("file", "x");
    assert_int_equal(mkdirat(ws, "dir", 0755), 0);
    assert_int_equal(get("nope", &out, &e), -1);
    assert_string_equal(err_code(&e), "not_found");
    assert_non_null(strstr(e.msg, "/workspace/nope"));
    assert_int_equal(get("file/x", &out, &e), -1);
    assert_string_equal(err_code(&e), "not_found");
    assert_int_equal(get("dir", &out, &e), -1);
    assert_string_equal(err_code(&e), "is_directory");
    assert_int_equal(put("dir", "x", false, -1, &e), -1);
    assert_string_equal(err_code(&e), "is_directory");
    assert_int_equal(put("dir/", "x", false, -1, &e), -1);
    assert_int_equal(put(".", "x", false, -1, &e), -1);
    assert_int_equal(put("dir/..", "x", false, -1, &e), -1);
    buf_release(&out);
}

/* --- lists ---------------------------------------------------------------------------------- */

static int list(const char *path, const struct files_list *how, struct buf *out, struct buf *next)
{
    struct err e = ERR_INIT;
    struct jw w = JW_INIT(out);
    buf_clear(out);
    jw_array(&w);
    int r = files_list(ws, path, how, &w, next, &e);
    jw_end_array(&w);
    return r;
}

/* All names over all pages, joined by '|'. */
static void names(bool recursive, int64_t limit, struct buf *out)
{
    struct buf page = BUF_INIT(1 << 20), next = BUF_INIT(1 << 16), cursor = BUF_INIT(1 << 16);
    struct err e = ERR_INIT;
    do {
        struct files_list how = {
            .recursive = recursive, .limit = limit, .cursor = cursor.len ? cursor.p : NULL};
        buf_clear(&next);
        assert_int_equal(list(".", &how, &page, &next), FILES_OK);
        _cleanup_json_ struct json *j = NULL;
        assert_int_equal(json_parse(page.p, page.len, &j, &e), 0);
        assert_true((int64_t)json_len(j) <= limit);
        for (const struct json *x = json_first(j); x; x = json_next(x))
            buf_addf(out, "%s|", json_get_string(x, "name", ""));
        buf_clear(&cursor);
        buf_add(&cursor, next.p, next.len);
    } while (cursor.len);
    buf_release(&page);
    buf_release(&next);
    buf_release(&cursor);
}

static void lists_are_sorted_and_paged(void **state)
{
    (void)state;
    static const char *const made[] = {"b/x", "b/y/z", "a", "b.c", "b-", "B", "a b", "c/1", "c/2"};
    for (size_t i = 0; i < ARRAY_LEN(made); i++)
        write_ok(made[i], "");
    for (int64_t limit = 1; limit < 14; limit++) {
        struct buf out = BUF_INIT(1 << 16);
        names(true, limit, &out);
        /* A directory stands right before what is in it: "b" and its files before "b-". */
        assert_string_equal(out.p, "B|a|a b|b|b/x|b/y|b/y/z|b-|b.c|c|c/1|c/2|");
        buf_release(&out);
    }
    struct buf out = BUF_INIT(1 << 16);
    names(false, 2, &out);
    assert_string_equal(out.p, "B|a|a b|b|b-|b.c|c|");
    buf_release(&out);
}

static void lists_do_not_follow_links(void **state)
{
    (void)state;
    struct buf out = BUF_INIT(1 << 20), next = BUF_INIT(1 << 16);
    struct files_list how = {.recursive = true, .limit = 100};
    assert_int_equal(symlinkat(tmp_path("out"), ws, "leak"), 0);
    assert_int_equal(symlinkat(".", ws, "self"), 0);
    assert_int_equal(mkfifoat(ws, "fifo", 0600), 0);
    assert_int_equal(list(".", &how, &out, &next), FILES_OK);
    assert_null(strstr(out.p, "secret"));
    assert_null(strstr(out.p, "self/"));
    assert_non_null(strstr(out.p, "\"type\":\"symlink\""));
    assert_non_null(strstr(out.p, "\"type\":\"fifo\""));
    assert_int_equal(list("leak", &how, &out, &next), FILES_ELSEWHERE);
    assert_int_equal(list("fifo", &how, &out, &next), -1);
    buf_release(&out);
    buf_release(&next);
}

static void a_deep_tree_ends(void **state)
{
    (void)state;
    struct buf out = BUF_INIT(1 << 20), next = BUF_INIT(1 << 16), path = BUF_INIT(1 << 16);
    struct files_list how = {.recursive = true, .limit = 1000};
    for (int i = 0; i < 100; i++)
        buf_addf(&path, "d/");
    buf_adds(&path, "f");
    write_ok(path.p, "");
    assert_int_equal(list(".", &how, &out, &next), FILES_OK);
    assert_int_equal(next.len, 0);
    buf_release(&out);
    buf_release(&next);
    buf_release(&path);
}

/* --- races ---------------------------------------------------------------------------------- */

static volatile bool racing;

static void *swap(void *arg)
{
    (void)arg;
    while (racing) {
        (void)renameat2(ws, "dir", ws, "link", RENAME_EXCHANGE);
        (void)renameat2(ws, "dir", ws, "link", RENAME_EXCHANGE);
    }
    return NULL;
}

/* A directory and a link to the outside change places all the time. */
static void races_do_not_lead_outside(void **state)
{
    (void)state;
    pthread_t thread;
    struct err e = ERR_INIT;
    struct buf out = BUF_INIT(1000);
    write_ok("dir/secret", "mine");
    assert_int_equal(symlinkat(tmp_path("out"), ws, "link"), 0);
    racing = true;
    assert_int_equal(pthread_create(&thread, NULL, swap, NULL), 0);
    for (int i = 0; i < 3000; i++) {
        if (get("dir/secret", &out, &e) == FILES_OK)
            assert_string_equal(out.p, "mine");
        (void)put("dir/w", "evil", false, -1, &e);
        (void)put("dir/new/w", "evil", false, -1, &e);
        (void)put("dir/secret", "mine", false, -1, &e);
    }
    racing = false;
    (void)pthread_join(thread, NULL);
    assert_int_equal(access(tmp_path("out/w"), F_OK), -1);
    assert_int_equal(access(tmp_path("out/new"), F_OK), -1);
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(path_rules, setup, teardown),
        cmocka_unit_test(names_round_trip),
        cmocka_unit_test_setup_teardown(writes_and_reads, setup, teardown),
        cmocka_unit_test_setup_teardown(odd_names_are_names, setup, teardown),
        cmocka_unit_test_setup_teardown(names_of_bytes_are_found_by_their_escapes, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_leads_outside, setup, teardown),
        cmocka_unit_test_setup_teardown(links_inside_work, setup, teardown),
        cmocka_unit_test_setup_teardown(no_fifo_hangs, setup, teardown),
        cmocka_unit_test_setup_teardown(errors_say_what_is_wrong, setup, teardown),
        cmocka_unit_test_setup_teardown(lists_are_sorted_and_paged, setup, teardown),
        cmocka_unit_test_setup_teardown(lists_do_not_follow_links, setup, teardown),
        cmocka_unit_test_setup_teardown(a_deep_tree_ends, setup, teardown),
        cmocka_unit_test_setup_teardown(races_do_not_lead_outside, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
