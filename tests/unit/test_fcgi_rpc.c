#include "common/base.h"

#include "fcgi/rpc.h"
#include "fcgi/tools.h"
#include "tests/unit/support.h"

static struct settings settings;
static struct app app;

#define META                                                                                       \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","                       \
    "\"io.modelcontextprotocol/clientCapabilities\":{}}"
#define V999                                                                                       \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"v999.0.0\","                         \
    "\"io.modelcontextprotocol/clientCapabilities\":{}}"
#define OLD_META                                                                                   \
    "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2025-11-25\","                       \
    "\"io.modelcontextprotocol/clientCapabilities\":{}}"
#define MSG(id, method, params)                                                                    \
    "{\"jsonrpc\":\"2.0\",\"id\":" id ",\"method\":\"" method "\",\"params\":{" params "}}"
#define H(version, method, name)                                                                   \
    {                                                                                              \
        "HTTP_MCP_PROTOCOL_VERSION=" version, "HTTP_MCP_METHOD=" method, "HTTP_MCP_NAME=" name     \
    }
#define MODERN "2026-07-28"
#define NO                                                                                         \
    {                                                                                              \
        NULL                                                                                       \
    }

/* Body, headers, status, what the answer has. "" as answer: it must be empty. */
static const struct {
    int line;
    const char *headers[3];
    const char *body;
    int status;
    const char *has;
} rows[] = {
    /* parsing and the envelope */
    {ROW, NO, "{", 400, "\"id\":null,\"error\":{\"code\":-32700"},
    {ROW, NO, "\xef\xbb\xbf{}", 400, "-32700"},
    {ROW, NO, "\"\xff\"", 400, "-32700"},
    {ROW, NO, "", 400, "-32700"},
    {ROW, NO, "{\"id\":1,\"id\":2}", 400, "-32700"},
    {ROW, NO, "{\"a\":\"\\u0000\"}", 400, "-32700"},
    {ROW, NO, "1", 400, "-32600"},
    {ROW, NO, "null", 400, "-32600"},
    {ROW, NO, "\"x\"", 400, "-32600"},
    {ROW, NO, "{}", 400, "-32600"},
    {ROW, NO, "{\"jsonrpc\":\"1.0\",\"id\":1,\"method\":\"ping\"}", 400,
     "\"id\":1,\"error\":{\"code\":-32600"},
    {ROW, NO, "{\"jsonrpc\":2.0,\"id\":1,\"method\":\"ping\"}", 400, "-32600"},
    {ROW, NO, "{\"jsonrpc\":\"2.0\",\"id\":1}", 400, "-32600"},
    {ROW, NO, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":5}", 400, "-32600"},
    {ROW, NO, MSG("null", "ping", ""), 400, "\"id\":null,\"error\":{\"code\":-32600"},
    {ROW, NO, MSG("1.5", "ping", ""), 400, "\"id\":null,\"error\":{\"code\":-32600"},
    {ROW, NO, MSG("true", "ping", ""), 400, "-32600"},
    {ROW, NO, MSG("[1]", "ping", ""), 400, "-32600"},
    /* ids come back as they came */
    {ROW, NO, MSG("0", "ping", ""), 200, "\"id\":0,\"result\":{}"},
    {ROW, NO, MSG("-7", "ping", ""), 200, "\"id\":-7,\"result\":{}"},
    {ROW, NO, MSG("\"1\"", "ping", ""), 200, "\"id\":\"1\",\"result\":{}"},
    {ROW, NO, MSG("9007199254740991", "ping", ""), 200, "\"id\":9007199254740991,\"result\":{}"},
    {ROW, NO, MSG("1152921504606846977", "ping", ""), 200,
     "\"id\":1152921504606846977,\"result\":{}"},
    {ROW, NO, MSG("-1152921504606846977", "nope", ""), 200,
     "\"id\":-1152921504606846977,\"error\""},
    {ROW, NO, MSG("\"\xe6\x97\xa5\\n\"", "ping", ""), 200, "\"id\":\"\xe6\x97\xa5\\n\""},
    /* one way */
    {ROW, NO, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}", 202, ""},
    {ROW, NO, "{\"jsonrpc\":\"2.0\",\"method\":\"unknown/thing\",\"params\":{}}", 202, ""},
    {ROW, NO, "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", 202, ""},
    {ROW, NO, "{\"jsonrpc\":\"2.0\",\"id\":1,\"error\":{}}", 202, ""},
    {ROW, H(MODERN, "x", ""), "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}", 400, "-32600"},
    {ROW, H(MODERN, "x", ""), "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\"}", 202,
     ""},
    /* legacy */
    {ROW, NO, MSG("1", "initialize", "\"protocolVersion\":\"2025-06-18\""), 200,
     "\"protocolVersion\":\"2025-06-18\""},
    {ROW, NO, MSG("1", "initialize", "\"protocolVersion\":\"2024-11-05\""), 200,
     "\"protocolVersion\":\"2024-11-05\""},
    {ROW, NO, MSG("1", "initialize", "\"protocolVersion\":\"2026-07-28\""), 200,
     "\"protocolVersion\":\"2025-11-25\""},
    {ROW, NO, MSG("1", "initialize", "\"protocolVersion\":\"what\""), 200,
     "\"protocolVersion\":\"2025-11-25\""},
    {ROW, NO, MSG("1", "initialize", ""), 200, "\"protocolVersion\":\"2025-11-25\""},
    {ROW, H(MODERN, "initialize", ""), MSG("1", "initialize", ""), 200,
     "\"protocolVersion\":\"2025-11-25\""},
    {ROW, {"HTTP_MCP_PROTOCOL_VERSION=2025-06-18"}, MSG("1", "ping", ""), 200, "\"result\":{}"},
    {ROW, {"HTTP_MCP_PROTOCOL_VERSION=2025-01-01"}, MSG("1", "ping", ""), 400, "-32600"},
    {ROW, {"HTTP_MCP_PROTOCOL_VERSION=2025-01-01"}, MSG("1", "initialize", ""), 200, "\"result\""},
    {ROW, NO, MSG("1", "server/discover", ""), 200, "-32601"},
    {ROW, NO, MSG("1", "logging/setLevel", ""), 200, "-32601"},
    {ROW, NO, MSG("1", "resources/list", ""), 200, "-32601"},
    {ROW, NO, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\"}", 200,
     "\"tools\":[{\"name\":\"exec\""},
    {ROW, NO, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":null}", 200,
     "\"tools\":["},
    {ROW, NO, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":[]}", 200,
     "-32602"},
    {ROW, NO, MSG("1", "tools/list", "\"cursor\":\"\""), 200, "\"tools\":["},
    {ROW, NO, MSG("1", "tools/list", "\"cursor\":\"x\""), 200, "-32602"},
    {ROW, NO, MSG("1", "tools/call", ""), 200, "-32602"},
    {ROW, NO, MSG("1", "tools/call", "\"name\":5"), 200, "-32602"},
    {ROW, NO, MSG("1", "tools/call", "\"name\":\"exec\",\"arguments\":[]"), 200, "-32602"},
    {ROW, NO, MSG("1", "tools/call", "\"name\":\"exec\",\"arguments\":\"x\""), 200, "-32602"},
    {ROW, NO, MSG("1", "tools/call", "\"name\":\"exex\""), 200,
     "Unknown tool: exex. Did you mean exec?"},
    {ROW, NO, MSG("1", "tools/call", "\"name\":\"exec\""), 200, "\\\"command\\\\\\\" is missing"},
    {ROW, NO, MSG("1", "tools/call", "\"name\":\"exec\",\"arguments\":null"), 200,
     "\"isError\":true"},
    {ROW, NO, MSG("1", "tools/call", "\"name\":\"exec\",\"arguments\":{\"command\":\"  \"}"), 200,
     "\"isError\":true"},
    /* modern */
    {ROW, H(MODERN, "server/discover", ""), MSG("\"d\"", "server/discover", META), 200,
     "\"supportedVersions\":[\"2026-07-28\"]"},
    {ROW, H(MODERN, "server/discover", ""), MSG("\"d\"", "server/discover", META), 200,
     "\"ttlMs\":300000,\"cacheScope\":\"private\""},
    {ROW, H(MODERN, "tools/list", ""), MSG("1", "tools/list", META), 200,
     "\"resultType\":\"complete\",\"tools\":["},
    {ROW, H(MODERN, "tools/list", ""), MSG("1", "tools/list", ""), 400, "-32602"},
    {ROW, H(MODERN, "tools/list", ""),
     MSG("1", "tools/list",
         "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\"}"),
     400, "-32602"},
    {ROW, H(MODERN, "tools/list", ""),
     MSG("1", "tools/list", "\"_meta\":{\"io.modelcontextprotocol/protocolVersion\":5}"), 400,
     "-32602"},
    {ROW, H(MODERN, "tools/list", ""), MSG("1", "tools/list", V999), 400, "-32020"},
    {ROW, H("v999.0.0", "tools/list", ""), MSG("1", "tools/list", V999), 400,
     "-32022,\"message\":\"Unsupported protocol "
     "version\",\"data\":{\"supported\":[\"2026-07-28\"],\"requested\":\"v999.0.0\"}"},
    {ROW, H("2025-11-25", "tools/list", ""), MSG("1", "tools/list", OLD_META), 400, "-32022"},
    {ROW, NO, MSG("1", "tools/list", META), 400, "-32020"},
    {ROW, {"HTTP_MCP_PROTOCOL_VERSION=2026-07-28"}, MSG("1", "tools/list", META), 400, "-32020"},
    {ROW, H(MODERN, "Tools/list", ""), MSG("1", "tools/list", META), 400, "-32020"},
    {ROW, H(MODERN, "ping", ""), MSG("1", "ping", META), 404, "-32601"},
    {ROW, H(MODERN, "initialize", ""), MSG("1", "initialize", META), 404, "-32601"},
    {ROW, H(MODERN, "logging/setLevel", ""), MSG("1", "logging/setLevel", META), 404, "-32601"},
    {ROW, H(MODERN, "prompts/get", "a"), MSG("1", "prompts/get", META ",\"name\":\"b\""), 400,
     "-32020"},
    {ROW, H(MODERN, "prompts/get", "b"), MSG("1", "prompts/get", META ",\"name\":\"b\""), 404,
     "-32601"},
    {ROW, H(MODERN, "tools/call", "nope"), MSG("1", "tools/call", META ",\"name\":\"nope\""), 200,
     "-32602"},
    {ROW, H(MODERN, "tools/call", "exec"), MSG("1", "tools/call", META ",\"name\":\"nope\""), 400,
     "-32020"},
    {ROW, H(MODERN, "tools/call", "=?base64?bm9wZQ==?="),
     MSG("1", "tools/call", META ",\"name\":\"nope\""), 200, "Unknown tool"},
    {ROW, H(MODERN, "tools/call", "=?base64?bm9wZ===?="),
     MSG("1", "tools/call", META ",\"name\":\"nope\""), 400, "-32020"},
    {ROW, H(MODERN, "tools/call", "=?base64?bm9wZQ=="),
     MSG("1", "tools/call", META ",\"name\":\"nope\""), 400, "-32020"},
    {ROW, H(MODERN, "tools/call", "exec"), MSG("1", "tools/call", META ",\"name\":\"exec\""), 200,
     "\"isError\":true,\"_meta\":{\"io.modelcontextprotocol/serverInfo\""},
    /* batches */
    {ROW, NO, "[" MSG("1", "ping", "") "," MSG("\"b\"", "nope", "") "]", 200,
     "[{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}},{\"jsonrpc\":\"2.0\",\"id\":\"b\",\"error\""},
    {ROW, NO, "[{\"jsonrpc\":\"2.0\",\"method\":\"a\"}]", 202, ""},
    {ROW, NO, "[]", 400, "-32600"},
    {ROW, NO, "[1]", 200, "[{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600"},
    {ROW, NO, "[" MSG("1", "initialize", "") "]", 200, "-32600"},
    {ROW, NO, "[" MSG("1", "ping", "") "," MSG("2", "tools/list", META) "]", 400, "-32600"},
    {ROW, {"HTTP_MCP_PROTOCOL_VERSION=2025-03-26"}, "[" MSG("1", "ping", "") "]", 200, "[{"},
    {ROW, {"HTTP_MCP_PROTOCOL_VERSION=2025-11-25"}, "[" MSG("1", "ping", "") "]", 400, "-32600"},
    {ROW, H(MODERN, "ping", ""), "[" MSG("1", "ping", "") "]", 400, "-32600"},
};

static void run(const char *body, const struct http *http, struct exchange *x)
{
    struct buf b = BUF_INIT(1 << 20);
    buf_adds(&b, body);
    exchange_init(x, &app, http, &b);
    exchange_start(x);
}

static void the_ladder(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *env[4] = {NULL};
        size_t n = 0;
        for (size_t k = 0; k < 3; k++)
            if (rows[i].headers[k])
                env[n++] = xstrdup(rows[i].headers[k]);
        struct http http = {.env = env, .peer_fd = -1};
        struct exchange x;
        struct buf out = BUF_INIT(1 << 20);
        run(rows[i].body, &http, &x);
        row_true(rows[i].line, exchange_step(&x));
        exchange_answer(&x, &out);
        if (exchange_status(&x) != rows[i].status || !strstr(out.p, rows[i].has) ||
            (!*rows[i].has && out.len))
            fail_msg("row of line %d: %d %s", rows[i].line, exchange_status(&x), out.p);
        exchange_release(&x);
        buf_release(&out);
        while (n)
            free(env[--n]);
    }
}

static void without_headers_only_the_body_counts(void **state)
{
    (void)state;
    struct exchange x;
    struct buf out = BUF_INIT(1 << 20);
    run(MSG("1", "tools/list", META), NULL, &x);
    exchange_answer(&x, &out);
    assert_non_null(strstr(out.p, "\"resultType\":\"complete\""));
    exchange_release(&x);
    buf_clear(&out);
    run(MSG("1", "server/discover", ""), NULL, &x);
    exchange_answer(&x, &out);
    assert_non_null(strstr(out.p, "-32601"));
    exchange_release(&x);
    buf_release(&out);
}

static void a_subscription_is_acknowledged_and_ends(void **state)
{
    (void)state;
    struct exchange x;
    struct buf out = BUF_INIT(1 << 20);
    run(MSG("\"listen:0\"", "subscriptions/listen", META), NULL, &x);
    exchange_answer(&x, &out);
    assert_non_null(strstr(x.ops[0].notes.p, "notifications/subscriptions/acknowledged"));
    assert_non_null(strstr(x.ops[0].notes.p, "subscriptionId\":\"listen:0\""));
    assert_non_null(strstr(out.p, "\"id\":\"listen:0\",\"result\":{\"resultType\":\"complete\""));
    exchange_release(&x);
    buf_release(&out);
}

static void errors_have_no_structured_content(void **state)
{
    (void)state;
    struct exchange x;
    struct buf out = BUF_INIT(1 << 20);
    run(MSG("1", "tools/call", "\"name\":\"exec\""), NULL, &x);
    exchange_answer(&x, &out);
    assert_null(strstr(out.p, "structuredContent"));
    assert_non_null(strstr(out.p, "\"isError\":true"));
    exchange_release(&x);
    buf_release(&out);
}

static int start(void **state)
{
    struct err e = ERR_INIT;
    if (tmp_setup(state) < 0 || settings_load(&settings, NULL, &e) < 0 ||
        tools_load(&settings, &e) < 0)
        return -1;
    char **dirs[] = {&settings.data_dir, &settings.run_dir, &settings.state_db};
    for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
        free(*dirs[i]);
        *dirs[i] = xstrdup(tmp_path(i == 2 ? "state.db" : i ? "run" : "data"));
    }
    return app_init(&app, &settings, &e);
}

static int end(void **state)
{
    app_release(&app);
    tools_unload();
    settings_release(&settings);
    return tmp_teardown(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ladder),
        cmocka_unit_test(without_headers_only_the_body_counts),
        cmocka_unit_test(a_subscription_is_acknowledged_and_ends),
        cmocka_unit_test(errors_have_no_structured_content),
    };
    return cmocka_run_group_tests(tests, start, end);
}
