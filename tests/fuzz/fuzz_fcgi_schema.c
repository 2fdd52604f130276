#include "common/base.h"

#include "fcgi/schema.h"
#include "fcgi/tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct settings settings;

/* An error is complete JSON for a model; accepted arguments can be read by every accessor. */
static void try_tool(const struct tool *t, const struct json *obj)
{
    struct err e = ERR_INIT;
    struct args args = {.obj = obj};
    struct buf out = BUF_INIT(1 << 16);
    struct json *j = NULL;
    if (tools_validate(t, &args, &e) < 0) {
        json_error(&out, &e);
        check(e.kind == ERR_INVALID && streq(err_code(&e), "invalid_argument"));
        check(json_parse(out.p, out.len, &j, &e) == 0);
        (void)json_free(j);
    }
    for (const struct json *c = json_first(obj); c; c = json_next(c)) {
        const char *key = json_key(c);
        (void)args_number(&args, key, 0);
        (void)args_int(&args, key, 0);
        (void)args_bool(&args, key, false);
        (void)args_string(&args, key, "");
    }
    buf_release(&out);
}

/* First byte: which tool, or whether the input itself is a schema. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct err e = ERR_INIT;
    struct json *j = NULL;
    if (!settings.token)
        check(settings_load(&settings, NULL, &e) == 0 && tools_load(&settings, &e) == 0);
    if (n < 1 || json_parse((const char *)data + 1, n - 1, &j, &e) < 0)
        return 0;
    if (data[0] == 0xff) {
        struct buf usage = BUF_INIT(1 << 20);
        struct args none = {0};
        if (schema_check(j, &e) == 0) {
            schema_usage(j, "t", &usage);
            (void)!schema_validate(j, &none, &e);
        }
        buf_release(&usage);
    } else if (json_type(j) == JSON_OBJECT) {
        try_tool(tools_at(data[0] % tools_count()), j);
    }
    (void)json_free(j);
    return 0;
}
