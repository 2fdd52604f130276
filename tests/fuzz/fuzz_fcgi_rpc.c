#include "common/base.h"

#include "fcgi/rpc.h"
#include "fcgi/tools.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct settings settings;
static struct app app;

/* A place where nothing can be made: tools get as far as their validation. */
static void start(void)
{
    struct err e = ERR_INIT;
    char **paths[] = {&settings.data_dir, &settings.run_dir, &settings.state_db};
    check(settings_load(&settings, NULL, &e) == 0 && tools_load(&settings, &e) == 0);
    for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
        free(*paths[i]);
        *paths[i] = xstrdup("/proc/nowhere/x");
    }
    check(app_init(&app, &settings, &e) == 0);
}

/* Up to three headers: lines in front of an empty line. Returns where the body begins. */
static size_t headers(const char *p, size_t n, char *env[4])
{
    static const char *const names[] = {"HTTP_MCP_PROTOCOL_VERSION", "HTTP_MCP_METHOD",
                                        "HTTP_MCP_NAME"};
    size_t at = 0;
    for (size_t i = 0; i < 3; i++) {
        const char *nl = memchr(p + at, '\n', n - at);
        if (!nl)
            break;
        size_t len = (size_t)(nl - p) - at;
        struct buf line = BUF_INIT(1 << 20);
        buf_addf(&line, "%s=", names[i]);
        buf_add(&line, p + at, strnlen(p + at, len));
        env[i] = buf_take(&line);
        at += len + 1;
    }
    return at;
}

/* Whatever comes in, what goes out is nothing or one valid JSON text. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *env[4] = {NULL};
    struct http http = {.env = env, .peer_fd = -1};
    struct exchange x;
    struct err e = ERR_INIT;
    struct json *j = NULL;
    if (!app.settings)
        start();
    bool web = n && (data[0] & 1);
    size_t at = n ? 1 : 0;
    if (web)
        at += headers((const char *)data + at, n - at, env);
    struct buf body = BUF_INIT(1 << 20), out = BUF_INIT(RPC_RESPONSE_MAX);
    buf_add(&body, data + at, n - at);
    exchange_init(&x, &app, web ? &http : NULL, &body);
    exchange_start(&x);
    check(exchange_step(&x));
    exchange_answer(&x, &out);
    int status = exchange_status(&x);
    check(status == 200 || status == 202 || status == 400 || status == 404);
    check((status == 202) == !out.len);
    /* An id beyond 2^53 is echoed and is the one thing that the parser would refuse. */
    check(!out.len || x.big_id || json_parse(out.p, out.len, &j, &e) == 0);
    (void)json_free(j);
    exchange_release(&x);
    buf_release(&out);
    for (size_t i = 0; i < 3; i++)
        free(env[i]);
    return 0;
}
