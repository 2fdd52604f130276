#include "common/base.h"

#include "common/buf.h"
#include "common/err.h"
#include "common/json.h"
#include "tests/unit/support.h"

static void set_says_what_and_where(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    assert_int_equal(err_set(&e, ERR_NOTFOUND, "no sandbox %s", "x"), -1);
    assert_int_equal(e.kind, ERR_NOTFOUND);
    assert_string_equal(e.msg, "no sandbox x");
    assert_non_null(strstr(e.file, "test_common_err.c"));
    assert_string_equal(err_code(&e), "not_found");
    assert_non_null(strstr(err_fix_text(&e), "list_sandboxes"));
}

static void sys_takes_errno(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    errno = ENOSPC;
    assert_int_equal(err_sys(&e, "write %s", "f"), -1);
    assert_int_equal(e.sys, ENOSPC);
    assert_string_equal(e.msg, "write f: No space left on device");
    assert_int_equal(e.kind, ERR_INTERNAL);
}

static void set_again_forgets_the_old_fix_and_code(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    (void)err_set(&e, ERR_LIMIT, "a");
    assert_int_equal(err_fix(&e, "pids", "stop %d", 3), -1);
    assert_string_equal(err_code(&e), "pids");
    assert_string_equal(err_fix_text(&e), "stop 3");
    (void)err_set(&e, ERR_TIMEOUT, "b");
    assert_string_equal(err_code(&e), "timeout");
    assert_null(strstr(err_fix_text(&e), "stop 3"));
}

static void wrap_puts_context_in_front(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    (void)err_set(&e, ERR_INVALID, "bad");
    (void)err_fix(&e, "c", "f");
    assert_int_equal(err_wrap(&e, "file %d", 1), -1);
    assert_string_equal(e.msg, "file 1: bad");
    assert_string_equal(err_code(&e), "c");
    assert_string_equal(err_fix_text(&e), "f");
}

static void long_messages_are_cut_not_overrun(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    char big[2000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    (void)err_set(&e, ERR_INVALID, "%s", big);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    (void)err_wrap(&e, "ctx");
    assert_memory_equal(e.msg, "ctx: xxx", 8);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    (void)err_wrap(&e, "%s", big);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    (void)err_fix(&e, NULL, "%s", big);
    assert_int_equal(strlen(e.fix), sizeof e.fix - 1);
    errno = EIO;
    (void)err_sys(&e, "%s", big);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
}

static void null_is_allowed(void **state)
{
    (void)state;
    assert_int_equal(err_set(NULL, ERR_INVALID, "x"), -1);
    assert_int_equal(err_wrap(NULL, "x"), -1);
    assert_int_equal(err_fix(NULL, "c", "x"), -1);
}

static void every_kind_has_name_and_fix(void **state)
{
    (void)state;
    for (unsigned k = ERR_OK; k < ERR_KIND_COUNT; k++) {
        struct err e = {.kind = (enum err_kind)k};
        assert_non_null(err_kind_name(e.kind));
        assert_int_equal(err_kind_from(err_kind_name(e.kind)), k);
        if (k != ERR_OK)
            assert_true(strlen(err_fix_text(&e)) > 10);
        for (unsigned o = 0; o < k; o++)
            assert_string_not_equal(err_kind_name((enum err_kind)o), err_kind_name(e.kind));
    }
    assert_int_equal(err_kind_from("nonsense"), ERR_INTERNAL);
}

/* What a model is told is valid JSON whatever bytes got into the message. */
static void json_error_is_always_json(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    (void)err_set(&e, ERR_INVALID, "a \"q\" \x01 \xff\xfe \n");
    _cleanup_buf_ struct buf out = BUF_INIT(4096);
    json_error(&out, &e);
    _cleanup_json_ struct json *j = NULL;
    assert_int_equal(json_parse(out.p, out.len, &j, &e), 0);
    assert_string_equal(json_get_string(j, "code", ""), "invalid");
    assert_non_null(strstr(json_get_string(j, "error", ""), "a \"q\" \x01 \xef\xbf\xbd"));
    assert_int_equal(json_len(j), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_says_what_and_where),
        cmocka_unit_test(sys_takes_errno),
        cmocka_unit_test(set_again_forgets_the_old_fix_and_code),
        cmocka_unit_test(wrap_puts_context_in_front),
        cmocka_unit_test(long_messages_are_cut_not_overrun),
        cmocka_unit_test(null_is_allowed),
        cmocka_unit_test(every_kind_has_name_and_fix),
        cmocka_unit_test(json_error_is_always_json),
    };
    return cmocka_run_group_tests_name("err", tests, NULL, NULL);
}
