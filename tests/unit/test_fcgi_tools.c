#include "common/base.h"

#include "fcgi/tools.h"
#include "tests/unit/support.h"

static struct settings settings;

static int load(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    return settings_load(&settings, NULL, &e) < 0 || tools_load(&settings, &e) < 0 ? -1 : 0;
}

static int unload(void **state)
{
    (void)state;
    tools_unload();
    settings_release(&settings);
    return 0;
}

static struct json *listed(unsigned sets, struct buf *text)
{
    struct jw w = JW_INIT(text);
    struct err e = ERR_INIT;
    struct json *j = NULL;
    tools_list(sets, &w);
    assert_int_equal(json_parse(text->p, text->len, &j, &e), 0);
    return j;
}

static void every_row_is_complete(void **state)
{
    (void)state;
    for (size_t i = 0; i < tools_count(); i++) {
        const struct tool *t = tools_at(i);
        assert_non_null(t->run);
        assert_true(strlen(t->name) <= 40);
        assert_true(strspn(t->name, "abcdefghijklmnopqrstuvwxyz_") == strlen(t->name));
        assert_true(*t->title && *t->description && t->toolset);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(t->name, tools_at(k)->name);
    }
    assert_null(tools_at(tools_count()));
}

static void the_list_is_small_and_valid(void **state)
{
    (void)state;
    struct buf text = BUF_INIT(1 << 20);
    _cleanup_json_ struct json *j = listed(SET_ALL, &text);
    assert_int_equal(json_len(j), tools_count());
    assert_null(strchr(text.p, '@')); /* every mark was filled in */
    for (const struct json *t = json_first(j); t; t = json_next(t)) {
        const struct json *hints = json_get(t, "annotations");
        assert_string_equal(json_get_string(json_get(t, "inputSchema"), "type", ""), "object");
        assert_string_equal(json_get_string(json_get(t, "outputSchema"), "type", ""), "object");
        assert_int_equal(json_len(hints), 4);
        assert_true(*json_get_string(t, "description", ""));
    }
    buf_clear(&text);
    _cleanup_json_ struct json *core = listed(SET_CORE, &text);
    assert_true(json_len(core) > 0);
    assert_true(text.len < 12 * 1024);
    buf_release(&text);
}

static void defaults_come_from_the_settings(void **state)
{
    (void)state;
    struct buf text = BUF_INIT(1 << 20);
    _cleanup_json_ struct json *j = listed(SET_CORE, &text);
    const struct json *props = json_get(json_get(json_first(j), "inputSchema"), "properties");
    assert_int_equal(json_get_int(json_get(props, "timeout"), "default", 0), settings.exec_timeout);
    buf_release(&text);
}

static const struct {
    int line;
    const char *asked, *found;
} names[] = {
    {ROW, "exec", "exec"},
    {ROW, "list_all", "list_sandboxes"},
    {ROW, "destroy", "destroy_sandbox"},
    {ROW, "bg", "run_background"},
    {ROW, "logs", "get_job"},
    {ROW, "kill", "stop_job"},
    {ROW, "read_file", "read_text"},
    {ROW, "write_file", "write_text"},
    {ROW, "Exec", NULL},
    {ROW, "", NULL},
};

static void old_names_answer(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const struct rename *renames;
        const struct tool *t = tools_find(names[i].asked, SET_ALL, &renames);
        row_true(names[i].line, !t == !names[i].found);
        row_true(names[i].line, !t || streq(t->name, names[i].found));
    }
}

static void old_arguments_are_taken(void **state)
{
    (void)state;
    struct args args = {0};
    struct err e = ERR_INIT;
    _cleanup_json_ struct json *j = NULL;
    const char text[] = "{\"name\":\"01m8\",\"tail\":\"50\"}";
    const struct tool *t = tools_find("logs", SET_ALL, &args.renames);
    assert_int_equal(json_parse(text, strlen(text), &j, &e), 0);
    args.obj = j;
    assert_int_equal(tools_validate(t, &args, &e), 0);
    assert_string_equal(args_string(&args, "job_id", ""), "01m8");
    assert_int_equal(args_int(&args, "tail_lines", 0), 50);
}

static void sets_limit_what_is_found(void **state)
{
    (void)state;
    const struct rename *renames;
    struct err e = ERR_INIT;
    unsigned sets = 0;
    assert_null(tools_find("exec", SET_FILES, &renames));
    assert_int_equal(toolsets_parse("core, files", &sets, &e), 0);
    assert_int_equal(sets, SET_CORE | SET_FILES);
    assert_int_equal(toolsets_parse("all", &sets, &e), 0);
    assert_int_equal(sets, SET_ALL);
    assert_int_equal(toolsets_parse("", &sets, &e), 0);
    assert_int_equal(sets, SET_ALL);
    assert_int_equal(toolsets_parse("core,nope", &sets, &e), -1);
    assert_non_null(strstr(e.msg, "nope"));
}

static void the_nearest_name_is_named(void **state)
{
    (void)state;
    assert_string_equal(tools_nearest("exex", SET_ALL), "exec");
    assert_string_equal(tools_nearest("list_sandbox", SET_ALL), "list_sandboxes");
    assert_null(tools_nearest("completely_different", SET_ALL));
}

static void an_error_ends_in_the_usage(void **state)
{
    (void)state;
    struct args args = {0};
    struct err e = ERR_INIT;
    assert_int_equal(tools_validate(tools_find("exec", SET_ALL, &args.renames), &args, &e), -1);
    assert_non_null(strstr(e.fix, "usage: exec(command, sandbox?"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_complete),
        cmocka_unit_test(the_list_is_small_and_valid),
        cmocka_unit_test(defaults_come_from_the_settings),
        cmocka_unit_test(old_names_answer),
        cmocka_unit_test(old_arguments_are_taken),
        cmocka_unit_test(sets_limit_what_is_found),
        cmocka_unit_test(the_nearest_name_is_named),
        cmocka_unit_test(an_error_ends_in_the_usage),
    };
    return cmocka_run_group_tests(tests, load, unload);
}
