#include "common/base.h"

#include "fcgi/app.h"
#include "fcgi/http.h"
#include "fcgi/tools.h"
#include "fcgi/web.h"
#include "tests/unit/support.h"

#define TOKEN "0123456789abcdef0123"
#define AUTH  "HTTP_AUTHORIZATION=Bearer " TOKEN
#define JSON  "CONTENT_TYPE=application/json"

/* A face made of memory. */
struct fake {
    const char *body;
    size_t at, n;
    struct buf out;
};

static ssize_t fake_read(void *ctx, void *p, size_t n)
{
    struct fake *f = ctx;
    n = MIN(n, MIN(f->n - f->at, (size_t)7));
    memcpy(p, f->body + f->at, n);
    f->at += n;
    return (ssize_t)n;
}

static int fake_write(void *ctx, const void *p, size_t n)
{
    struct fake *f = ctx;
    buf_add(&f->out, p, n);
    return 0;
}

static int fake_flush(void *ctx)
{
    (void)ctx;
    return 0;
}

static const struct http_face face = {fake_read, fake_write, fake_flush};

static struct settings settings;
static struct app app;

static char *dup_nonconst(const char *s)
{
    return xstrdup(s);
}

/* Request a response; vars is a NULL-terminated list. */
static void request(const char *const *vars, const char *body, struct buf *out)
{
    char *env[24];
    size_t n = 0;
    for (; vars[n]; n++)
        env[n] = dup_nonconst(vars[n]);
    env[n] = NULL;
    struct fake f = {.body = body, .n = strlen(body), .out = BUF_INIT(1 << 20)};
    struct http h;
    http_init(&h, &face, &f, env, -1);
    web_serve(&app, &h);
    http_release(&h);
    buf_add(out, f.out.p, f.out.len);
    buf_release(&f.out);
    while (n)
        free(env[--n]);
}

#define PING "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}"

static const struct {
    int line;
    const char *vars[10];
    const char *body;
    const char *status;
    const char *has; /* somewhere in the response */
} requests[] = {
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON, NULL},
     PING,
     "200",
     "\"result\":{}"},
    {ROW, {"REQUEST_METHOD=POST", "PATH_INFO=/mcp", AUTH, JSON, NULL}, PING, "200", "\"result\""},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/cgi-bin/x", "PATH_INFO=/mcp", AUTH, JSON, NULL},
     PING,
     "200",
     ""},
    {ROW, {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp/", AUTH, JSON, NULL}, PING, "404", ""},
    {ROW, {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcpx", AUTH, JSON, NULL}, PING, "404", ""},
    {ROW, {"REQUEST_METHOD=POST", "SCRIPT_NAME=/x/../mcp", AUTH, JSON, NULL}, PING, "404", ""},
    {ROW, {"REQUEST_METHOD=POST", "SCRIPT_NAME=//mcp", AUTH, JSON, NULL}, PING, "404", ""},
    {ROW,
     {"REQUEST_METHOD=GET", "SCRIPT_NAME=/.well-known/oauth-protected-resource", NULL},
     "",
     "404",
     ""},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", JSON, NULL},
     PING,
     "401",
     "WWW-Authenticate: Bearer realm=\"mcp\"\r\n"},
    {ROW, {"REQUEST_METHOD=GET", "SCRIPT_NAME=/mcp", NULL}, "", "401", ""},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", "HTTP_AUTHORIZATION=Bearer wrong", JSON, NULL},
     PING,
     "401",
     "invalid_token"},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH ", Bearer x", JSON, NULL},
     PING,
     "401",
     ""},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", "HTTP_AUTHORIZATION=bearer  " TOKEN, JSON, NULL},
     PING,
     "200",
     ""},
    {ROW, {"REQUEST_METHOD=GET", "SCRIPT_NAME=/mcp", AUTH, NULL}, "", "405", "Allow: POST\r\n"},
    {ROW, {"REQUEST_METHOD=DELETE", "SCRIPT_NAME=/mcp", AUTH, NULL}, "", "405", "Allow: POST\r\n"},
    {ROW, {"REQUEST_METHOD=HEAD", "SCRIPT_NAME=/mcp", AUTH, NULL}, "", "405", "Allow: POST\r\n"},
    {ROW, {"REQUEST_METHOD=OPTIONS", "SCRIPT_NAME=/mcp", NULL}, "", "405", "Allow: POST\r\n"},
    {ROW,
     {"REQUEST_METHOD=OPTIONS", "SCRIPT_NAME=/mcp", "HTTP_ORIGIN=http://localhost:5173",
      "HTTP_ACCESS_CONTROL_REQUEST_HEADERS=mcp-param-a, evil\r\nX: 1", NULL},
     "",
     "204",
     "mcp-protocol-version, mcp-method, mcp-name, mcp-session-id, last-event-id, mcp-param-a\r\n"},
    {ROW,
     {"REQUEST_METHOD=OPTIONS", "SCRIPT_NAME=/mcp", "HTTP_ORIGIN=http://evil.example", NULL},
     "",
     "403",
     ""},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON, "HTTP_ORIGIN=http://evil.example",
      NULL},
     PING,
     "403",
     ""},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON, "HTTP_ORIGIN=http://localhost",
      "HTTP_HOST=evil.example", NULL},
     PING,
     "403",
     ""},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON, "HTTP_HOST=tunnel.example", NULL},
     PING,
     "200",
     ""},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON, "HTTP_ORIGIN=http://127.0.0.1:9",
      "HTTP_HOST=127.0.0.1:8000", NULL},
     PING,
     "200",
     "Access-Control-Allow-Origin: http://127.0.0.1:9\r\nVary: Origin\r\n"},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", JSON, "HTTP_ORIGIN=http://localhost", NULL},
     PING,
     "401",
     "Access-Control-Allow-Origin"},
    {ROW, {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, NULL}, PING, "415", ""},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, "CONTENT_TYPE=text/plain", NULL},
     PING,
     "415",
     ""},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, "CONTENT_TYPE=application/jsonx", NULL},
     PING,
     "415",
     ""},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH,
      "CONTENT_TYPE=Application/JSON; charset=utf-8", NULL},
     PING,
     "200",
     ""},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON, "CONTENT_LENGTH=999999999", NULL},
     PING,
     "413",
     "upload_file"},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON, "CONTENT_LENGTH=500", NULL},
     PING,
     "400",
     "early"},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON, "CONTENT_LENGTH=x", NULL},
     PING,
     "400",
     ""},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON, "CONTENT_LENGTH=-1", NULL},
     PING,
     "200",
     ""},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON, "HTTP_ACCEPT=text/event-stream", NULL},
     PING,
     "200",
     "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON, "HTTP_ACCEPT=text/html", NULL},
     PING,
     "200",
     "Content-Type: application/json"},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON, "QUERY_STRING=toolsets=files", NULL},
     "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"exec\"}}",
     "200",
     "Unknown tool: exec"},
    {ROW,
     {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON,
      "QUERY_STRING=a=b&toolsets=c%6fre%2Cnope", NULL},
     PING,
     "400",
     "nope"},
    {ROW, {"REQUEST_METHOD=POST", "SCRIPT_NAME=/healthz", NULL}, "", "405", "Allow: GET, HEAD"},
};

static void responses(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
        struct buf out = BUF_INIT(1 << 20);
        request(requests[i].vars, requests[i].body, &out);
        char status[16];
        (void)snprintf(status, sizeof status, "Status: %s ", requests[i].status);
        if (strncmp(out.p, status, strlen(status)) != 0 || !strstr(out.p, requests[i].has))
            fail_msg("row of line %d: %s", requests[i].line, out.p);
        assert_null(strstr(out.p, "X: 1"));
        buf_release(&out);
    }
}

static void a_body_over_the_limit_is_found_while_reading(void **state)
{
    (void)state;
    static const char *const vars[] = {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON, NULL};
    struct buf out = BUF_INIT(1 << 20);
    char *body = xmalloc((size_t)settings.max_body + 2);
    memset(body, ' ', (size_t)settings.max_body + 1);
    body[settings.max_body + 1] = '\0';
    request(vars, body, &out);
    assert_int_equal(strncmp(out.p, "Status: 413 ", 12), 0);
    free(body);
    buf_release(&out);
}

static void a_notification_has_no_body(void **state)
{
    (void)state;
    static const char *const vars[] = {"REQUEST_METHOD=POST", "SCRIPT_NAME=/mcp", AUTH, JSON, NULL};
    struct buf out = BUF_INIT(1 << 20);
    request(vars, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}", &out);
    assert_int_equal(strncmp(out.p, "Status: 202 ", 12), 0);
    assert_null(strstr(out.p, "Content-Type"));
    assert_non_null(strstr(out.p, "Content-Length: 0\r\n"));
    assert_string_equal(out.p + out.len - 4, "\r\n\r\n");
    buf_release(&out);
}

static const struct {
    int line;
    const char *value;
    bool origin; /* else a host */
    bool allowed;
} names[] = {
    {ROW, "http://localhost", true, true},
    {ROW, "https://localhost:3000", true, true},
    {ROW, "http://127.0.0.1:1", true, true},
    {ROW, "http://[::1]:1", true, true},
    {ROW, "http://localhost.evil.example", true, false},
    {ROW, "http://localhost:3000.evil.example", true, false},
    {ROW, "http://localhost@evil.example", true, false},
    {ROW, "null", true, false},
    {ROW, "", true, false},
    {ROW, "file://", true, false},
    {ROW, "https://app.example.org", true, true},
    {ROW, "https://app.example.org:444", true, false},
    {ROW, "https://public.example.org", true, true},
    {ROW, "http://public.example.org", true, false},
    {ROW, "localhost", false, true},
    {ROW, "localhost:8000", false, true},
    {ROW, "[::1]:8000", false, true},
    {ROW, "127.0.0.1", false, true},
    {ROW, "PUBLIC.example.org", false, true},
    {ROW, "other.example.org", false, false},
    {ROW, "localhost.evil.example", false, false},
    {ROW, "localhost:x", false, false},
    {ROW, "", false, false},
};

static void origins_and_hosts(void **state)
{
    (void)state;
    char origins[] = "https://app.example.org", hosts[] = "";
    char base[] = "https://public.example.org/prefix";
    struct settings s = {
        .allowed_origins = origins, .allowed_hosts = hosts, .public_base_url = base};
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        bool r = names[i].origin ? web_origin_allowed(&s, names[i].value)
                                 : web_host_allowed(&s, names[i].value);
        row_true(names[i].line, r == names[i].allowed);
    }
    char any[] = "*";
    s.allowed_hosts = any;
    assert_true(web_host_allowed(&s, "whatever.example"));
}

static void tokens(void **state)
{
    (void)state;
    assert_true(web_token_ok(&app, "Bearer " TOKEN));
    assert_true(web_token_ok(&app, "BEARER " TOKEN " "));
    assert_false(web_token_ok(&app, "Bearer " TOKEN "x"));
    assert_false(web_token_ok(&app, "Bearer"));
    assert_false(web_token_ok(&app, "Bearer "));
    assert_false(web_token_ok(&app, "Basic " TOKEN));
    assert_false(web_token_ok(&app, TOKEN));
    assert_false(web_token_ok(&app, NULL));
}

static const struct {
    int line;
    const char *accept;
    bool json, sse;
} accepts[] = {
    {ROW, NULL, true, false},
    {ROW, "", true, false},
    {ROW, "*/*", true, false},
    {ROW, "application/json", true, false},
    {ROW, "APPLICATION/JSON", true, false},
    {ROW, "application/*;q=0.5", true, false},
    {ROW, "text/event-stream", false, true},
    {ROW, "Text/Event-Stream;q=1", false, true},
    {ROW, "application/json, text/event-stream", true, true},
    {ROW, "text/event-stream,*/*", true, true},
    {ROW, "text/html", true, false},
};

static void accept_headers(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(accepts); i++) {
        row_true(accepts[i].line, web_accepts_json(accepts[i].accept) == accepts[i].json);
        row_true(accepts[i].line, web_accepts_sse(accepts[i].accept) == accepts[i].sse);
    }
}

static int start(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    if (settings_load(&settings, NULL, &e) < 0 || tools_load(&settings, &e) < 0)
        return -1;
    free(settings.token);
    settings.token = xstrdup(TOKEN);
    settings.max_body = 1 << 16;
    return app_init(&app, &settings, &e);
}

static int end(void **state)
{
    (void)state;
    app_release(&app);
    tools_unload();
    settings_release(&settings);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(responses),
        cmocka_unit_test(a_body_over_the_limit_is_found_while_reading),
        cmocka_unit_test(a_notification_has_no_body),
        cmocka_unit_test(origins_and_hosts),
        cmocka_unit_test(tokens),
        cmocka_unit_test(accept_headers),
    };
    return cmocka_run_group_tests(tests, start, end);
}
