#include "common/base.h"

#include "fcgi/schema.h"
#include "tests/unit/support.h"

static struct json *parse(const char *text)
{
    struct json *j = NULL;
    struct err e = ERR_INIT;
    if (json_parse(text, strlen(text), &j, &e) < 0)
        fail_msg("%s: %s", text, e.msg);
    return j;
}

static const char schema_text[] =
    "{\"type\":\"object\",\"properties\":{"
    "\"command\":{\"type\":\"string\",\"minLength\":1,\"maxLength\":10},"
    "\"timeout\":{\"type\":\"number\",\"minimum\":0.1,\"maximum\":100},"
    "\"lines\":{\"type\":\"integer\",\"minimum\":0},"
    "\"deep\":{\"type\":\"boolean\"},"
    "\"signal\":{\"type\":\"string\",\"enum\":[\"TERM\",\"KILL\"]},"
    "\"memory\":{\"type\":[\"string\",\"integer\"]},"
    "\"env\":{\"type\":\"object\",\"additionalProperties\":{\"type\":\"string\"}},"
    "\"list\":{\"type\":\"array\",\"items\":{\"type\":\"integer\"},\"maxItems\":2},"
    "\"closed\":{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"null\"}},"
    "\"additionalProperties\":false}"
    "},\"required\":[\"command\"],\"additionalProperties\":false}";

#define OK NULL

/* Members besides "command", and what the error must say. */
static const struct {
    int line;
    const char *args;
    const char *says, *also;
} values[] = {
    {ROW, "{\"command\":\"x\"}", OK, ""},
    {ROW, "{\"command\":\"x\",\"timeout\":30}", OK, ""},
    {ROW, "{\"command\":\"x\",\"timeout\":\"30\"}", OK, ""},
    {ROW, "{\"command\":\"x\",\"timeout\":\"3.5e1\"}", OK, ""},
    {ROW, "{\"command\":\"x\",\"timeout\":null}", OK, ""},
    {ROW, "{\"command\":\"x\",\"timeout\":\"30s\"}", "\"timeout\" is \"30s\"", "a number"},
    {ROW, "{\"command\":\"x\",\"timeout\":\"\"}", "\"timeout\" is \"\"", "a number"},
    {ROW, "{\"command\":\"x\",\"timeout\":\" 3\"}", "takes a number", ""},
    {ROW, "{\"command\":\"x\",\"timeout\":\"0x10\"}", "takes a number", ""},
    {ROW, "{\"command\":\"x\",\"timeout\":\"NaN\"}", "takes a number", ""},
    {ROW, "{\"command\":\"x\",\"timeout\":\"1e999\"}", "takes a number", ""},
    {ROW, "{\"command\":\"x\",\"timeout\":true}", "is true; it takes a number", ""},
    {ROW, "{\"command\":\"x\",\"timeout\":-1}", "is -1", "from 0.1 to 100"},
    {ROW, "{\"command\":\"x\",\"timeout\":0}", "is 0", "from 0.1 to 100"},
    {ROW, "{\"command\":\"x\",\"timeout\":1000000000}", "from 0.1 to 100", ""},
    {ROW, "{\"command\":\"x\",\"lines\":5.0}", OK, ""},
    {ROW, "{\"command\":\"x\",\"lines\":\"5\"}", OK, ""},
    {ROW, "{\"command\":\"x\",\"lines\":\"5.0\"}", OK, ""},
    {ROW, "{\"command\":\"x\",\"lines\":5.5}", "a whole number", ""},
    {ROW, "{\"command\":\"x\",\"lines\":-1}", "at least 0", ""},
    {ROW, "{\"command\":\"x\",\"deep\":\"true\"}", OK, ""},
    {ROW, "{\"command\":\"x\",\"deep\":\"false\"}", OK, ""},
    {ROW, "{\"command\":\"x\",\"deep\":\"yes\"}", "true or false", ""},
    {ROW, "{\"command\":\"x\",\"deep\":1}", "true or false", ""},
    {ROW, "{\"command\":\"x\",\"signal\":\"KILL\"}", OK, ""},
    {ROW, "{\"command\":\"x\",\"signal\":\"kill\"}", "one of [\"TERM\",\"KILL\"]", ""},
    {ROW, "{\"command\":\"x\",\"memory\":\"2g\"}", OK, ""},
    {ROW, "{\"command\":\"x\",\"memory\":5}", OK, ""},
    {ROW, "{\"command\":\"x\",\"memory\":[]}", "a whole number or a string", ""},
    {ROW, "{\"command\":\"x\",\"env\":{\"A\":\"b\"}}", OK, ""},
    {ROW, "{\"command\":\"x\",\"env\":{\"A\":{}}}", "env.A", "a string"},
    {ROW, "{\"command\":\"x\",\"env\":[]}", "an object", ""},
    {ROW, "{\"command\":\"x\",\"list\":[1,\"2\"]}", OK, ""},
    {ROW, "{\"command\":\"x\",\"list\":[1,\"z\"]}", "list[1]", ""},
    {ROW, "{\"command\":\"x\",\"list\":[1,2,3]}", "at most 2 entries", ""},
    {ROW, "{\"command\":\"x\",\"closed\":{\"b\":1}}", "closed.b", "no such member"},
    {ROW, "{\"command\":5}", "is 5; it takes a string", ""},
    {ROW, "{\"command\":\"\"}", "at least 1 bytes", ""},
    {ROW, "{\"command\":\"12345678901\"}", "at most 10 bytes", ""},
    {ROW, "{\"command\":null}", "\"command\" is missing", ""},
    {ROW, "{}", "\"command\" is missing", ""},
    {ROW, "{\"comand\":\"x\"}", "no argument \"comand\"", "did you mean \"command\""},
    {ROW, "{\"zzzzzzzz\":1}", "no argument \"zzzzzzzz\"", ""},
};

static void validates(void **state)
{
    (void)state;
    _cleanup_json_ struct json *schema = parse(schema_text);
    for (size_t i = 0; i < ARRAY_LEN(values); i++) {
        _cleanup_json_ struct json *j = parse(values[i].args);
        struct args args = {.obj = j};
        struct err e = ERR_INIT;
        int r = schema_validate(schema, &args, &e);
        if (values[i].says) {
            row_true(values[i].line, r < 0 && streq(err_code(&e), "invalid_argument"));
            if (!strstr(e.msg, values[i].says) || !strstr(e.msg, values[i].also))
                fail_msg("row of line %d: %s", values[i].line, e.msg);
        } else {
            row_true(values[i].line, r == 0);
        }
    }
}

static void missing_arguments_are_an_empty_object(void **state)
{
    (void)state;
    _cleanup_json_ struct json *schema = parse("{\"type\":\"object\",\"properties\":{}}");
    struct args args = {0};
    struct err e = ERR_INIT;
    assert_int_equal(schema_validate(schema, &args, &e), 0);
}

static void accessors_convert(void **state)
{
    (void)state;
    _cleanup_json_ struct json *j =
        parse("{\"n\":\"30\",\"f\":\"1.5\",\"b\":\"true\",\"z\":null,\"old\":\"v\",\"i\":5.0}");
    const struct rename renames[RENAMES_MAX] = {{"old", "now"}};
    struct args args = {.obj = j, .renames = renames};
    assert_int_equal(args_int(&args, "n", 0), 30);
    assert_int_equal(args_int(&args, "i", 0), 5);
    assert_true(args_number(&args, "f", 0) > 1.4 && args_number(&args, "f", 0) < 1.6);
    assert_true(args_bool(&args, "b", false));
    assert_false(args_has(&args, "z"));
    assert_int_equal(args_int(&args, "z", 7), 7);
    assert_string_equal(args_string(&args, "now", ""), "v");
    assert_string_equal(args_name(&args, "old"), "now");
}

static const struct {
    int line;
    const char *schema;
    const char *says; /* NULL: accepted */
} schemas[] = {
    {ROW, "{\"type\":\"object\"}", NULL},
    {ROW, "{\"type\":\"object\",\"oneOf\":[]}", "oneOf"},
    {ROW, "{\"type\":\"array\"}", "root"},
    {ROW, "[]", "not an object"},
    {ROW, "{\"type\":\"object\",\"properties\":{\"a\":{\"type\":\"strin\"}}}", "bad type"},
    {ROW, "{\"type\":\"object\",\"properties\":{\"a\":{\"pattern\":\"x\"}}}", "pattern"},
    {ROW, "{\"type\":\"object\",\"required\":[\"a\"]}", "no property"},
    {ROW, "{\"type\":\"object\",\"required\":[1]}", "strings"},
    {ROW, "{\"type\":\"object\",\"properties\":{\"a\":{\"minimum\":\"x\"}}}", "number"},
};

static void schemas_are_checked(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(schemas); i++) {
        _cleanup_json_ struct json *j = parse(schemas[i].schema);
        struct err e = ERR_INIT;
        int r = schema_check(j, &e);
        row_true(schemas[i].line, (r == 0) == !schemas[i].says);
        row_true(schemas[i].line, r == 0 || strstr(e.msg, schemas[i].says));
    }
}

static void usage_names_all_arguments(void **state)
{
    (void)state;
    _cleanup_json_ struct json *j = parse(schema_text);
    struct buf out = BUF_INIT(1000);
    schema_usage(j, "exec", &out);
    assert_string_equal(out.p, "exec(command, timeout?, lines?, deep?, signal?, memory?, env?, "
                               "list?, closed?)");
    buf_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(validates),
        cmocka_unit_test(missing_arguments_are_an_empty_object),
        cmocka_unit_test(accessors_convert),
        cmocka_unit_test(schemas_are_checked),
        cmocka_unit_test(usage_names_all_arguments),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
