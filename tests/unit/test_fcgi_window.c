#include "common/base.h"

#include "fcgi/window.h"
#include "tests/unit/support.h"

static const struct {
    int line;
    const char *text;
    int64_t first, lines;
    size_t cap;
    const char *out;
    bool more;
    int64_t next;
} rows[] = {
    {ROW, "a\nb\nc\n", 1, INT64_MAX, 100, "a\nb\nc\n", false, 0},
    {ROW, "a\nb\nc", 1, INT64_MAX, 100, "a\nb\nc", false, 0},
    {ROW, "a\nb\nc\n", 2, 1, 100, "b\n", true, 3},
    {ROW, "a\nb\nc\n", 3, 1, 100, "c\n", false, 0},
    {ROW, "a\nb\nc\n", 4, 1, 100, "", false, 0},
    {ROW, "aaaa\nbbbb\n", 1, INT64_MAX, 7, "aaaa\n", true, 2},
    {ROW, "aaaa\nbbbb\n", 1, INT64_MAX, 10, "aaaa\nbbbb\n", false, 0},
    {ROW, "aaaaaaaaaa\nb\n", 1, INT64_MAX, 4, "aaaa", true, 2},
    {ROW, "", 1, INT64_MAX, 4, "", false, 0},
    {ROW, "\n\n\n", 2, 1, 4, "\n", true, 3},
};

/* The same whatever pieces the bytes come in. */
static void windows(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (size_t piece = 1; piece <= 16; piece++) {
            struct window w;
            window_init(&w, rows[i].first, rows[i].lines, rows[i].cap);
            size_t n = strlen(rows[i].text);
            for (size_t at = 0; at < n; at += piece)
                if (window_feed(&w, rows[i].text + at, MIN(piece, n - at)))
                    break;
            row_true(rows[i].line, streq(w.out.p, rows[i].out));
            row_true(rows[i].line, w.more == rows[i].more);
            row_true(rows[i].line, !w.more || window_next_line(&w) == rows[i].next);
            window_release(&w);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(windows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
