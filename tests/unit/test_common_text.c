#include "common/base.h"

#include "common/text.h"
#include "tests/unit/support.h"

#define IN(s) s, sizeof s - 1
#define BAD   "\xef\xbf\xbd"

static const struct {
    int line;
    const char *in;
    size_t n;
    unsigned cut;
    const char *out;
    enum text_encoding enc;
} clean[] = {
    {ROW, IN(""), 0, "", TEXT_UTF8},
    {ROW, IN("plain\n"), 0, "plain\n", TEXT_UTF8},
    {ROW, IN("\xe4\xb8\xad\xe6\x96\x87"), 0, "\xe4\xb8\xad\xe6\x96\x87", TEXT_UTF8},
    {ROW, IN("\xf0\x9f\x98\x80"), 0, "\xf0\x9f\x98\x80", TEXT_UTF8},
    {ROW, IN("\xef\xbf\xbf\xf4\x8f\xbf\xbf"), 0, "\xef\xbf\xbf\xf4\x8f\xbf\xbf", TEXT_UTF8},
    /* broken sequences: one replacement for each maximal part */
    {ROW,
     IN("a\xff\xfe"
        "b"),
     0, "a" BAD BAD "b", TEXT_BINARY},
    {ROW, IN("\xc0\xaf"), 0, BAD BAD, TEXT_BINARY},
    {ROW, IN("\xed\xa0\x80"), 0, BAD BAD BAD, TEXT_BINARY},
    {ROW, IN("\xf8\x88\x80\x80\x80"), 0, BAD BAD BAD BAD BAD, TEXT_BINARY},
    {ROW, IN("\xf4\x90\x80\x80"), 0, BAD BAD BAD BAD, TEXT_BINARY},
    {ROW, IN("\xe4\xb8x"), 0, BAD "x", TEXT_BINARY},
    {ROW, IN("\xf0\x9f\x98"), 0, BAD, TEXT_BINARY},
    {ROW, IN("\x80"), 0, BAD, TEXT_BINARY},
    {ROW, IN("caf\xe9 cr\xe8me"), 0, "caf" BAD " cr" BAD "me", TEXT_BINARY},
    /* GB18030: running Chinese text, two and four byte forms */
    {ROW, IN("\xd6\xd0\xce\xc4\xb2\xe2\xca\xd4\n"), 0,
     "\xe4\xb8\xad\xe6\x96\x87\xe6\xb5\x8b\xe8\xaf\x95\n", TEXT_GB18030},
    {ROW, IN("ls: \xce\xc4\xbc\xfe\xb2\xbb\xb4\xe6\xd4\xda"), 0,
     "ls: \xe6\x96\x87\xe4\xbb\xb6\xe4\xb8\x8d\xe5\xad\x98\xe5\x9c\xa8", TEXT_GB18030},
    /* UTF-8 with one broken character would read as GB18030, too: it is not */
    {ROW,
     IN("a\xe4\xb8\xad"
        "a\xe4\xb8\xad"
        "a\xe4\xb8"),
     0,
     "a\xe4\xb8\xad"
     "a\xe4\xb8\xad"
     "a" BAD,
     TEXT_BINARY},
    {ROW, IN("\xe6\x96\x87\xe4\xbb\xb6\xff\xe6\x96\x87"), 0,
     "\xe6\x96\x87\xe4\xbb\xb6" BAD "\xe6\x96\x87", TEXT_BINARY},
    /* a piece of a stream: the partial character at a cut is left out */
    {ROW, IN("ab\xe4\xb8"), TEXT_CUT_BACK, "ab", TEXT_UTF8},
    {ROW, IN("ab\xf0\x9f\x98"), TEXT_CUT_BACK, "ab", TEXT_UTF8},
    {ROW,
     IN("\xb8\xad"
        "ab"),
     TEXT_CUT_FRONT, "ab", TEXT_UTF8},
    {ROW,
     IN("\x9f\x98\x80"
        "ab"),
     TEXT_CUT_FRONT, "ab", TEXT_UTF8},
    {ROW, IN("\xad\xe4\xb8\xad\xe4"), TEXT_CUT_FRONT | TEXT_CUT_BACK, "\xe4\xb8\xad", TEXT_UTF8},
    {ROW, IN("\x80\x80\x80\x80z"), TEXT_CUT_FRONT, BAD "z", TEXT_BINARY},
    {ROW, IN("\xd6\xd0\xce\xc4\xb2"), TEXT_CUT_BACK, "\xe4\xb8\xad\xe6\x96\x87", TEXT_GB18030},
    {ROW, IN("\xd0\xce\xc4\xb2\xe2\xca\xd4\n\xd6\xd0\xb9\xfa"), TEXT_CUT_FRONT,
     "\xe6\x96\x87\xe6\xb5\x8b\xe8\xaf\x95\n\xe4\xb8\xad\xe5\x9b\xbd", TEXT_GB18030},
};

static void cleans(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(clean); i++) {
        struct buf out = BUF_INIT(1000);
        char *exact = xmalloc(clean[i].n);
        memcpy(exact, clean[i].in, clean[i].n);
        enum text_encoding enc = text_clean(&out, exact, clean[i].n, clean[i].cut);
        free(exact);
        if (!streq(out.p, clean[i].out) || enc != clean[i].enc)
            fail_msg("row of line %d: %s as %s", clean[i].line, out.p, text_encoding_name(enc));
        buf_release(&out);
    }
}

static void nul_bytes_stay(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf out = BUF_INIT(100);
    assert_int_equal(text_clean(&out, "a\0b", 3, 0), TEXT_UTF8);
    assert_int_equal(out.len, 3);
    assert_memory_equal(out.p, "a\0b", 4);
}

/* Whatever the bytes and the cuts: the output is valid UTF-8 and not longer than promised. */
static void any_bytes_give_valid_utf8(void **state)
{
    (void)state;
    unsigned seed = 12345;
    for (int round = 0; round < 20000; round++) {
        char in[24];
        size_t n = (size_t)(round % (int)sizeof in);
        for (size_t i = 0; i < n; i++) {
            seed = seed * 1103515245u + 12345u;
            in[i] = (char)(round & 1 ? seed >> 16 : (seed >> 16) | 0x80);
        }
        struct buf out = BUF_INIT(200);
        (void)text_clean(&out, in, n, (unsigned)round >> 3 & 3);
        assert_false(buf_bad(&out));
        assert_true(text_utf8_valid(out.p, out.len));
        buf_release(&out);
    }
}

/* A UTF-8 text cut anywhere into two: both pieces are whole, nothing is replaced. */
static void cutting_anywhere_never_breaks_a_character(void **state)
{
    (void)state;
    static const char text[] = "a\xc3\xa9\xe4\xb8\xad\xf0\x9f\x98\x80z\xe2\x82\xac";
    for (size_t at = 0; at < sizeof text; at++) {
        struct buf out = BUF_INIT(100);
        assert_int_equal(text_clean(&out, text, at, TEXT_CUT_BACK), TEXT_UTF8);
        assert_int_equal(out.len, text_utf8_trim(text, at));
        buf_clear(&out);
        assert_int_equal(text_clean(&out, text + at, sizeof text - 1 - at, TEXT_CUT_FRONT),
                         TEXT_UTF8);
        assert_null(strstr(out.p, BAD));
        buf_release(&out);
    }
}

static const struct {
    int line;
    const char *in;
    size_t n, trimmed;
} trims[] = {
    {ROW, IN(""), 0},
    {ROW, IN("abc"), 3},
    {ROW, IN("a\xc3\xa9"), 3},
    {ROW, IN("a\xc3"), 1},
    {ROW, IN("a\xe4\xb8"), 1},
    {ROW, IN("a\xe4"), 1},
    {ROW, IN("\xf0\x9f\x98"), 0},
    {ROW, IN("\xf0\x9f\x98\x80"), 4},
    {ROW, IN("a\xff"), 2}, /* wrong, not cut off */
    {ROW, IN("a\x80\x80\x80\x80"), 5},
    {ROW, IN("a\xc3\xa9\x80"), 4},
};

static void trims_partial_characters(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(trims); i++)
        row_true(trims[i].line, text_utf8_trim(trims[i].in, trims[i].n) == trims[i].trimmed);
}

static void excerpts(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf out = BUF_INIT(100);
    text_excerpt(&out, "a\nb\x7f\xff", 5, 10);
    assert_string_equal(out.p, "a b " BAD);
    buf_clear(&out);
    text_excerpt(&out, "ab\xe4\xb8\xad", 5, 4);
    assert_string_equal(out.p, "ab...");
}

static const struct {
    int line;
    const char *in;
    bool ok;
    int64_t v;
} ints[] = {
    {ROW, "0", true, 0},
    {ROW, "-1", true, -1},
    {ROW, "007", true, 7},
    {ROW, "100", true, 100},
    {ROW, "101", false, 0},
    {ROW, "-6", false, 0},
    {ROW, "", false, 0},
    {ROW, "-", false, 0},
    {ROW, "+1", false, 0},
    {ROW, " 1", false, 0},
    {ROW, "1 ", false, 0},
    {ROW, "10ms", false, 0},
    {ROW, "1.0", false, 0},
    {ROW, "0x1", false, 0},
    {ROW, "1e1", false, 0},
    {ROW, "--1", false, 0},
    {ROW, "99999999999999999999", false, 0},
};

static void reads_whole_numbers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(ints); i++) {
        int64_t v = 77;
        int r = text_int(ints[i].in, -5, 100, &v);
        row_true(ints[i].line, (r == 0) == ints[i].ok);
        row_true(ints[i].line, v == (ints[i].ok ? ints[i].v : 77));
    }
}

static void sandbox_names(void **state)
{
    (void)state;
    static const char *const good[] = {"a", "0", "default", "A.b_c-9", "a..", "x-"};
    static const char *const wrong[] = {"",    ".",   "..",  "-a",       "_a",  ".a",
                                        "a/b", "a b", "a\n", "\xc3\xa9", "a:b", "*"};
    char longest[65];
    for (size_t i = 0; i < ARRAY_LEN(good); i++)
        assert_true(text_sandbox_name(good[i]));
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_false(text_sandbox_name(wrong[i]));
    memset(longest, 'a', sizeof longest);
    longest[64] = '\0';
    assert_false(text_sandbox_name(longest));
    longest[63] = '\0';
    assert_true(text_sandbox_name(longest));
}

static void distances(void **state)
{
    (void)state;
    assert_int_equal(text_distance("exec", "exec"), 0);
    assert_int_equal(text_distance("exce", "exec"), 2);
    assert_int_equal(text_distance("", "abc"), 3);
    assert_int_equal(text_distance("kitten", "sitting"), 3);
    char a[201];
    memset(a, 'a', 200);
    a[200] = '\0';
    assert_int_equal(text_distance(a, ""), 63); /* long names do not overrun */
}

static const struct {
    int line;
    const char *text;
    size_t n;
    const char *base64;
} base64[] = {
    {ROW, IN(""), ""},        {ROW, IN("f"), "Zg=="},          {ROW, IN("fo"), "Zm8="},
    {ROW, IN("foo"), "Zm9v"}, {ROW, IN("\0\xff\xfe"), "AP/+"}, {ROW, IN("foobar"), "Zm9vYmFy"},
};

static void base64_both_ways(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(base64); i++) {
        struct buf b = BUF_INIT(100);
        text_base64(&b, base64[i].text, base64[i].n);
        row_true(base64[i].line, streq(b.p, base64[i].base64));
        buf_clear(&b);
        row_true(base64[i].line,
                 text_unbase64(&b, base64[i].base64, strlen(base64[i].base64)) == 0);
        row_true(base64[i].line, b.len == base64[i].n);
        row_true(base64[i].line, memcmp(b.p, base64[i].text, b.len) == 0);
        buf_release(&b);
    }
}

static void base64_refuses_what_is_not(void **state)
{
    (void)state;
    static const char *const wrong[] = {"A",
                                        "AB",
                                        "ABC",
                                        "A===",
                                        "====",
                                        "AB=C",
                                        "Zg==Zg==",
                                        "Zm9\n",
                                        "Zg==\n\n\n\n",
                                        "    ",
                                        "Zm 9",
                                        "Zm9-",
                                        "\xff\xff\xff\xff",
                                        " Zg=",
                                        "=Zg="};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        struct buf b = BUF_INIT(100);
        if (text_unbase64(&b, wrong[i], strlen(wrong[i])) == 0)
            fail_msg("accepted: '%s'", wrong[i]);
        assert_int_equal(b.len, 0);
        buf_release(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cleans),
        cmocka_unit_test(nul_bytes_stay),
        cmocka_unit_test(any_bytes_give_valid_utf8),
        cmocka_unit_test(cutting_anywhere_never_breaks_a_character),
        cmocka_unit_test(trims_partial_characters),
        cmocka_unit_test(excerpts),
        cmocka_unit_test(reads_whole_numbers),
        cmocka_unit_test(sandbox_names),
        cmocka_unit_test(distances),
        cmocka_unit_test(base64_both_ways),
        cmocka_unit_test(base64_refuses_what_is_not),
    };
    return cmocka_run_group_tests_name("text", tests, NULL, NULL);
}
