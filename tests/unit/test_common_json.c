#include "common/base.h"

#include "common/json.h"
#include "tests/unit/support.h"

#define IN(s) s, sizeof s - 1

/* What is refused, and a word that the message must contain. */
static const struct {
    int line;
    const char *text;
    size_t n;
    const char *says;
} refused[] = {
    {ROW, IN("{\"a\":\"x\\u0000y\"}"), "u0000"},
    {ROW, IN("{\"a\":1,\"a\":1}"), "twice"},
    {ROW, IN("{\"o\":{\"b\":1,\"c\":2,\"b\":3}}"), "twice"},
    {ROW, IN("{\"a\":1,\"\\u0061\":1}"), "twice"},
    {ROW, IN("\"\xff\""), "UTF-8"},
    {ROW, IN("\"\xc0\xaf\""), "UTF-8"},
    {ROW, IN("\"\xed\xa0\x80\""), "UTF-8"},
    {ROW, IN("9007199254740993"), "too large"},
    {ROW, IN("-9007199254740993"), "too large"},
    {ROW, IN("9007199254740992"), "too large"},
    {ROW, IN("12345678901234567890"), "too large"},
    {ROW, IN("1e999"), "too large"},
    {ROW, IN("-1e999"), "too large"},
    {ROW, IN("{} x"), "after"},
    {ROW, IN("{}{}"), "after"},
    {ROW, IN("{}\0"), ""},
    {ROW, IN("1 2"), "after"},
    {ROW, IN("\"a\nb\""), "control"},
    {ROW, IN("\"a\0b\""), "control"},
    {ROW, IN("\"a\tb\""), "control"},
    {ROW, IN(""), ""},
    {ROW, IN("   "), ""},
    {ROW, IN("{"), ""},
    {ROW, IN("["), ""},
    {ROW, IN("\"abc"), ""},
    {ROW, IN("\"abc\\"), ""},
    {ROW, IN("\"\\u00"), ""},
    {ROW, IN("{\"a\""), ""},
    {ROW, IN("{\"a\":"), ""},
    {ROW, IN("{\"a\":1,}"), ""},
    {ROW, IN("[1,]"), ""},
    {ROW, IN("[,1]"), ""},
    {ROW, IN("{a:1}"), ""},
    {ROW, IN("{'a':1}"), ""},
    {ROW, IN("{1:1}"), ""},
    {ROW, IN("nul"), ""},
    {ROW, IN("True"), ""},
    {ROW, IN("NaN"), ""},
    {ROW, IN("Infinity"), ""},
    {ROW, IN("-Infinity"), ""},
    {ROW, IN("\"\\q\""), ""},
    {ROW, IN("\"\\ud800\""), ""},
    {ROW, IN("\"\\ud800\\u0041\""), ""},
    {ROW, IN("\"\\udc00\""), ""},
    {ROW, IN("\"\\u12g4\""), ""},
    {ROW, IN("// c\n1"), ""},
    {ROW, IN("/* c */ 1"), ""},
    /* numbers as RFC 8259 writes them, no others */
    {ROW, IN("01"), ""},
    {ROW, IN("-01"), ""},
    {ROW, IN("+1"), ""},
    {ROW, IN(".5"), ""},
    {ROW, IN("-.5"), ""},
    {ROW, IN("1."), ""},
    {ROW, IN("1.e5"), ""},
    {ROW, IN("1e"), ""},
    {ROW, IN("1e+"), ""},
    {ROW, IN("-"), ""},
    {ROW, IN("0x10"), ""},
    {ROW, IN("1-2"), ""},
    {ROW, IN("[1,02]"), ""},
    {ROW, IN("{\"a\":1.}"), ""},
    /* only four characters are white space, and a byte order mark is not one */
    {ROW, IN("\x01{}"), ""},
    {ROW, IN("{\0}"), ""},
    {ROW, IN("[1,\v2]"), ""},
    {ROW, IN("\f1"), ""},
    {ROW, IN("\xef\xbb\xbf{}"), ""},
};

static void refuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct json *j = NULL;
        struct err e = ERR_INIT;
        char *exact = xmalloc(refused[i].n); /* no byte behind the text: sanitizers watch */
        memcpy(exact, refused[i].text, refused[i].n);
        int r = json_parse(exact, refused[i].n, &j, &e);
        free(exact);
        if (r == 0)
            fail_msg("row of line %d is accepted: %s", refused[i].line, refused[i].text);
        row_true(refused[i].line, e.kind == ERR_INVALID);
        row_true(refused[i].line, strncmp(e.msg, "JSON: ", 6) == 0);
        row_true(refused[i].line, strstr(e.msg, refused[i].says));
        row_true(refused[i].line, j == NULL);
    }
}

/* What is accepted, and how it is printed again. */
static const struct {
    int line;
    const char *text;
    const char *printed;
} accepted[] = {
    {ROW, "{}", "{}"},
    {ROW, " [ ] \r\n\t", "[]"},
    {ROW, "null", "null"},
    {ROW, "[true,false,null]", "[true,false,null]"},
    {ROW, "{\"b\":1,\"a\":2}", "{\"b\":1,\"a\":2}"},
    {ROW, "{\"A\":7,\"a\":8}", "{\"A\":7,\"a\":8}"},
    {ROW, "9007199254740991", "9007199254740991"},
    {ROW, "-9007199254740991", "-9007199254740991"},
    {ROW, "0", "0"},
    {ROW, "-0", "0"},
    {ROW, "1.5", "1.5"},
    {ROW, "30.0", "30"},
    {ROW, "1e3", "1000"},
    {ROW, "1E+3", "1000"},
    {ROW, "2.5e-1", "0.25"},
    {ROW, "0.1", "0.1"},
    {ROW, "3999999999999999.5", "3999999999999999.5"},
    {ROW, "1e-300", "1e-300"},
    {ROW, "\"\"", "\"\""},
    {ROW, "\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\\"\\\\/\\b\\f\\n\\r\\t\""},
    {ROW, "\"\\u0041\\u00e9\\u4e2d\"", "\"A\xc3\xa9\xe4\xb8\xad\""},
    {ROW, "\"\\ud83d\\ude00\"", "\"\xf0\x9f\x98\x80\""},
    {ROW, "\"\\u0001\"", "\"\\u0001\""},
    {ROW, "\"\\u007f\"", "\"\\u007f\""},
    {ROW, "\"\\\\u0000\"", "\"\\\\u0000\""}, /* a backslash and a word, no NUL */
    {ROW, "\"\xe2\x80\xa8\"", "\"\xe2\x80\xa8\""},
    {ROW, "[[1],{\"k\":[\"{\",\"]\"]}]", "[[1],{\"k\":[\"{\",\"]\"]}]"},
};

static void accepts_and_prints(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(accepted); i++) {
        struct json *j = NULL;
        struct err e = ERR_INIT;
        if (json_parse(accepted[i].text, strlen(accepted[i].text), &j, &e) < 0)
            fail_msg("row of line %d is refused: %s", accepted[i].line, e.msg);
        struct buf out = BUF_INIT(1000);
        json_print(j, &out);
        if (!streq(out.p, accepted[i].printed))
            fail_msg("row of line %d prints %s", accepted[i].line, out.p);
        buf_release(&out);
        j = json_free(j);
        assert_null(j);
    }
}

static int parse_nested(const char *open, const char *close, size_t levels, struct err *e)
{
    struct buf b = BUF_INIT(10000);
    for (size_t i = 0; i < levels; i++)
        buf_adds(&b, open);
    buf_adds(&b, "1");
    for (size_t i = 0; i < levels; i++)
        buf_adds(&b, close);
    struct json *j = NULL;
    int r = json_parse(b.p, b.len, &j, e);
    (void)json_free(j);
    buf_release(&b);
    return r;
}

static void depth_is_bounded(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    assert_int_equal(parse_nested("[", "]", JSON_MAX_DEPTH, &e), 0);
    assert_int_equal(parse_nested("[", "]", JSON_MAX_DEPTH + 1, &e), -1);
    assert_non_null(strstr(e.msg, "levels"));
    assert_int_equal(parse_nested("{\"a\":", "}", JSON_MAX_DEPTH, &e), 0);
    assert_int_equal(parse_nested("{\"a\":", "}", JSON_MAX_DEPTH + 1, &e), -1);
}

static void count_is_bounded(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct buf b = BUF_INIT(JSON_MAX_VALUES * 3);
    buf_adds(&b, "[0");
    for (int i = 1; i < JSON_MAX_VALUES; i++)
        buf_adds(&b, ",0");
    struct json *j = NULL;
    size_t ok = b.len;
    buf_adds(&b, "]");
    assert_int_equal(json_parse(b.p, b.len, &j, &e), 0);
    assert_int_equal(json_len(j), JSON_MAX_VALUES);
    j = json_free(j);
    b.len = ok;
    buf_adds(&b, ",0]");
    assert_int_equal(json_parse(b.p, b.len, &j, &e), -1);
    assert_non_null(strstr(e.msg, "values"));
    buf_release(&b);
}

static void reads_members(void **state)
{
    (void)state;
    static const char text[] = "{\"A\":7,\"s\":\"x\",\"t\":true,\"f\":1.5,\"n\":null,\"l\":[1,2]}";
    struct err e = ERR_INIT;
    _cleanup_json_ struct json *j = NULL;
    assert_int_equal(json_parse(text, sizeof text - 1, &j, &e), 0);
    assert_null(json_get(j, "a")); /* exact case */
    assert_int_equal(json_get_int(j, "A", -1), 7);
    assert_int_equal(json_get_int(j, "s", -1), -1);
    assert_int_equal(json_get_int(j, "f", -1), -1);
    assert_int_equal(json_get_int(j, "none", -2), -2);
    assert_string_equal(json_get_string(j, "s", "d"), "x");
    assert_string_equal(json_get_string(j, "A", "d"), "d");
    assert_true(json_get_bool(j, "t", false));
    assert_false(json_get_bool(j, "A", false));
    assert_int_equal(json_type(json_get(j, "n")), JSON_NULL);
    assert_null(json_get(json_get(j, "l"), "x"));
    assert_null(json_get(NULL, "x"));
    assert_null(json_first(NULL));
    assert_int_equal(json_len(json_get(j, "l")), 2);
    const struct json *first = json_first(j);
    assert_string_equal(json_key(first), "A");
    assert_string_equal(json_key(json_next(first)), "s");
    assert_string_equal(json_type_name(json_type(json_get(j, "l"))), "array");
    assert_false(json_is_int(json_get(j, "f")));
}

static void writes_a_stream(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(1000);
    struct jw w = JW_INIT(&b);
    jw_object(&w);
    jw_kstring(&w, "s", "q\"\\\n\x1f\x7f");
    jw_kstring(&w, "absent", NULL);
    jw_kint(&w, "i", INT64_MIN);
    jw_kreal(&w, "r", 0.5);
    jw_kreal(&w, "bad", (double)__builtin_inf());
    jw_kbool(&w, "b", false);
    jw_knull(&w, "n");
    jw_key(&w, "l");
    jw_array(&w);
    jw_int(&w, 1);
    jw_object(&w);
    jw_end_object(&w);
    jw_string_n(&w, "ab", 1);
    jw_end_array(&w);
    jw_kraw(&w, "raw", "[1]", 3);
    jw_end_object(&w);
    assert_string_equal(b.p, "{\"s\":\"q\\\"\\\\\\n\\u001f\\u007f\",\"i\":-9223372036854775808,"
                             "\"r\":0.5,\"bad\":null,\"b\":false,\"n\":null,"
                             "\"l\":[1,{},\"a\"],\"raw\":[1]}");
    assert_int_equal(w.depth, 0);
}

static void a_full_buffer_shows(void **state)
{
    (void)state;
    _cleanup_buf_ struct buf b = BUF_INIT(8);
    struct jw w = JW_INIT(&b);
    jw_array(&w);
    jw_string(&w, "longer than eight");
    jw_end_array(&w);
    assert_true(buf_bad(&b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses),
        cmocka_unit_test(accepts_and_prints),
        cmocka_unit_test(depth_is_bounded),
        cmocka_unit_test(count_is_bounded),
        cmocka_unit_test(reads_members),
        cmocka_unit_test(writes_a_stream),
        cmocka_unit_test(a_full_buffer_shows),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
