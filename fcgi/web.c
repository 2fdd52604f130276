#include "fcgi/web.h"

#include "common/clock.h"
#include "common/log.h"
#include "common/text.h"
#include "fcgi/health.h"
#include "fcgi/rpc.h"
#include "fcgi/tools.h"

#include <openssl/crypto.h>
#include <strings.h>

#define HEARTBEAT_US 10000000
#define STREAM_US    1000000 /* a call that may be cancelled gets a stream after this long */
#define JSON_TYPE    "application/json"

struct web {
    struct app *app;
    struct http *http;
    unsigned toolsets;
    struct buf body;
};

enum { GO_ON = 0, ANSWERED = 1 };

/* --- who may call --------------------------------------------------------------------------- */

/* Is the first `n` bytes of `s` one of the comma separated entries, or is there a '*'? */
static bool in_list(const char *list, const char *s, size_t n)
{
    while (*list) {
        list += strspn(list, ", \t");
        size_t len = strcspn(list, ", \t");
        if ((len == 1 && *list == '*') || (len && len == n && strncasecmp(list, s, n) == 0))
            return true;
        list += len;
    }
    return false;
}

/* Length of the host name in "host:port", "[::1]:port". */
static size_t host_length(const char *s)
{
    if (*s == '[') {
        const char *end = strchr(s, ']');
        return end ? (size_t)(end - s) + 1 : strlen(s);
    }
    return strcspn(s, ":/");
}

static bool loopback(const char *host, size_t n)
{
    return in_list("localhost,127.0.0.1,[::1]", host, n);
}

static const char *after_scheme(const char *url)
{
    const char *p = strstr(url, "://");
    return p ? p + 3 : url;
}

bool web_host_allowed(const struct settings *s, const char *host)
{
    size_t n = host_length(host);
    if (host[n] && (host[n] != ':' || strspn(host + n + 1, "0123456789") != strlen(host + n + 1)))
        return false;
    const char *ours = after_scheme(s->public_base_url);
    size_t m = host_length(ours);
    return loopback(host, n) || in_list(s->allowed_hosts, host, n) ||
           in_list(s->allowed_hosts, host, strlen(host)) ||
           (n && n == m && strncasecmp(host, ours, n) == 0);
}

bool web_origin_allowed(const struct settings *s, const char *origin)
{
    size_t n = strlen(origin), base = strlen(s->public_base_url);
    if (in_list(s->allowed_origins, origin, n))
        return true;
    size_t own = (size_t)(after_scheme(s->public_base_url) - s->public_base_url);
    own += strcspn(s->public_base_url + own, "/");
    if (own <= base && own == n && strncasecmp(origin, s->public_base_url, n) == 0)
        return true;
    if (strncasecmp(origin, "http://", 7) != 0 && strncasecmp(origin, "https://", 8) != 0)
        return false;
    const char *host = after_scheme(origin);
    size_t len = host_length(host);
    bool port = !host[len] || (host[len] == ':' &&
                               strspn(host + len + 1, "0123456789") == strlen(host + len + 1));
    return port && loopback(host, len);
}

/* The token of an Authorization header and its length, or NULL. */
static const char *bearer(const char *authorization, size_t *ret_n)
{
    if (!authorization || strncasecmp(authorization, "Bearer", 6) != 0 || authorization[6] != ' ')
        return NULL;
    const char *token = authorization + 6 + strspn(authorization + 6, " ");
    *ret_n = strlen(token);
    while (*ret_n && token[*ret_n - 1] == ' ')
        --*ret_n;
    return token;
}

bool web_token_ok(const struct app *app, const char *authorization)
{
    unsigned char hash[APP_HASH];
    size_t n;
    const char *token = bearer(authorization, &n);
    if (!token)
        return false;
    app_sha256(token, n, hash);
    return CRYPTO_memcmp(hash, app->token_hash, sizeof hash) == 0;
}

/* --- small answers -------------------------------------------------------------------------- */

static int refuse(struct web *w, int status, const char *extra, const char *message)
{
    const char *version = http_header(w->http, "MCP-Protocol-Version");
    struct buf out = BUF_INIT(2048);
    rpc_error_text(&out, version && mcp_modern_version(version), NULL, RPC_REQUEST, NULL, message);
    (void)http_respond(w->http, status, JSON_TYPE, extra, out.p, out.len);
    buf_release(&out);
    return ANSWERED;
}

static int not_found(struct web *w)
{
    return refuse(w, 404, NULL, "there is nothing at this address; the server is at /mcp");
}

/* --- the HTTP rungs ------------------------------------------------------------------------- */

static int check_origin(struct web *w)
{
    const struct settings *s = w->app->settings;
    const char *origin = http_header(w->http, "Origin"), *host = http_header(w->http, "Host");
    if (origin && !web_origin_allowed(s, origin))
        return refuse(w, 403, NULL, "this Origin may not call; see SMCP_ALLOWED_ORIGINS");
    if ((origin || *s->allowed_hosts) && host && !web_host_allowed(s, host))
        return refuse(w, 403, NULL, "this Host is not served; see SMCP_ALLOWED_HOSTS");
    w->http->cors = origin;
    return GO_ON;
}

static void add_param_headers(const struct web *w, struct buf *out)
{
    const char *asked = http_header(w->http, "Access-Control-Request-Headers");
    while (asked && *asked) {
        asked += strspn(asked, ", \t");
        size_t n = strcspn(asked, ", \t"),
               good = strspn(asked,
                             "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_");
        if (n > 10 && n < 80 && good >= n && strncasecmp(asked, "mcp-param-", 10) == 0)
            buf_addf(out, ", %.*s", (int)n, asked);
        asked += n;
    }
}

static int allow(struct web *w, const char *method)
{
    struct buf extra = BUF_INIT(4096);
    buf_addf(&extra, "Access-Control-Allow-Methods: %s\r\n", method);
    buf_adds(&extra, "Access-Control-Max-Age: 600\r\n"
                     "Access-Control-Allow-Headers: content-type, accept, authorization, "
                     "mcp-protocol-version, mcp-method, mcp-name, mcp-session-id, last-event-id");
    add_param_headers(w, &extra);
    buf_adds(&extra, "\r\n");
    (void)http_respond(w->http, 204, NULL, extra.p, "", 0);
    buf_release(&extra);
    return ANSWERED;
}

static int check_preflight(struct web *w)
{
    if (!streq(w->http->method, "OPTIONS"))
        return GO_ON;
    if (!w->http->cors)
        return refuse(w, 405, "Allow: POST\r\n", "POST one JSON-RPC message here");
    return allow(w, "POST");
}

static int challenge(struct web *w, int status, const char *error, const char *message)
{
    struct buf line = BUF_INIT(4096);
    oauth_challenge(w->app->oauth, error, &line);
    (void)refuse(w, status, line.p, message);
    buf_release(&line);
    return ANSWERED;
}

/* Not the server's token, and access tokens of an issuer count as well. */
static int check_access_token(struct web *w, const char *authorization)
{
    struct err e = ERR_INIT;
    size_t n;
    const char *token = bearer(authorization, &n);
    if (!authorization || !*authorization)
        return challenge(w, 401, NULL, "send an access token: 'Authorization: Bearer <token>'");
    if (!token || !n)
        return challenge(w, 401, "invalid_token", "the Authorization header holds no Bearer token");
    if (oauth_check(w->app->oauth, token, n, &e) == 0)
        return GO_ON;
    if (e.kind == ERR_UNAVAILABLE)
        return refuse(w, 503, "Retry-After: 30\r\n", e.msg);
    if (e.kind == ERR_FORBIDDEN)
        return challenge(w, 403, "insufficient_scope", e.msg);
    return challenge(w, 401, "invalid_token", e.msg);
}

static int check_token(struct web *w)
{
    const char *authorization = http_header(w->http, "Authorization");
    if (web_token_ok(w->app, authorization))
        return GO_ON;
    if (w->app->oauth)
        return check_access_token(w, authorization);
    if (!authorization || !*authorization)
        return refuse(w, 401, "WWW-Authenticate: Bearer realm=\"mcp\"\r\n",
                      "send the header 'Authorization: Bearer <SMCP_TOKEN>'");
    return refuse(w, 401, "WWW-Authenticate: Bearer realm=\"mcp\", error=\"invalid_token\"\r\n",
                  "this token is not the server's; 'make -s token' prints it");
}

static int check_method(struct web *w)
{
    if (streq(w->http->method, "POST"))
        return GO_ON;
    return refuse(w, 405, "Allow: POST\r\n", "POST one JSON-RPC message here");
}

static int check_type(struct web *w)
{
    const char *type = http_header(w->http, "Content-Type");
    if (type && http_media_is(type, JSON_TYPE))
        return GO_ON;
    return refuse(w, 415, NULL, "Content-Type must be application/json");
}

static int check_body(struct web *w)
{
    struct err e = ERR_INIT;
    buf_init(&w->body, (size_t)w->app->settings->max_body);
    if (http_body(w->http, &w->body, &e) == 0)
        return GO_ON;
    if (e.kind != ERR_LIMIT)
        return refuse(w, 400, NULL, e.msg);
    char message[sizeof e.msg + 64];
    (void)snprintf(message, sizeof message, "%s; large files go by upload_file", e.msg);
    return refuse(w, 413, NULL, message);
}

static int check_toolsets(struct web *w)
{
    struct buf list = BUF_INIT(256);
    struct err e = ERR_INIT;
    unsigned asked = SET_ALL;
    int r = 0;
    if (http_query(w->http, "toolsets", &list))
        r = toolsets_parse(list.p, &asked, &e);
    w->toolsets = w->app->toolsets & asked;
    buf_release(&list);
    return r < 0 ? refuse(w, 400, NULL, e.msg) : GO_ON;
}

static int (*const rungs[])(struct web *w) = {
    check_origin, check_preflight, check_token,    check_method,
    check_type,   check_body,      check_toolsets,
};

/* --- driving an exchange -------------------------------------------------------------------- */

static bool accepts(const char *accept, const char *type)
{
    for (const char *p = accept; *p; p += strcspn(p, ","), p += *p == ',')
        if (http_media_is(p, type))
            return true;
    return false;
}

bool web_accepts_json(const char *accept)
{
    return !accept || !*accept || accepts(accept, JSON_TYPE) || accepts(accept, "application/*") ||
           accepts(accept, "*/*") || !accepts(accept, "text/event-stream");
}

bool web_accepts_sse(const char *accept)
{
    return accept && accepts(accept, "text/event-stream");
}

/* Sleep until the runner rings, the client leaves or `limit_us` comes. True: the client has left.
 */
static bool wait_for_news(struct web *w, bool watch_peer, int64_t limit_us)
{
    struct pollfd fds[RUNNER_POLL_FDS + 1];
    int64_t now = clock_mono_us();
    size_t n = runner_poll(&w->app->runner, fds);
    int ms = runner_timeout(&w->app->runner, now);
    if (limit_us >= 0)
        ms = (int)MIN((int64_t)(ms < 0 ? INT_MAX : ms), MAX(limit_us - now, (int64_t)0) / 1000 + 1);
    if (watch_peer && w->http->peer_fd >= 0)
        fds[n++] = (struct pollfd){.fd = w->http->peer_fd, .events = POLLRDHUP};
    int r = poll(fds, n, ms);
    runner_dispatch(&w->app->runner);
    return r > 0 && watch_peer && fds[n - 1].fd == w->http->peer_fd && fds[n - 1].revents;
}

/* Returns -1 when the client has left. */
static int send_progress(struct web *w, struct exchange *x, int64_t *last_us)
{
    struct buf text = BUF_INIT(1 << 16);
    int r = 0;
    int64_t now = clock_mono_us();
    bool sent = op_take_progress(&x->ops[0], &text);
    if (sent)
        r = http_event(w->http, text.p, text.len);
    else if (now - *last_us >= HEARTBEAT_US)
        r = http_comment(w->http), sent = true;
    if (sent)
        *last_us = now;
    buf_release(&text);
    return r;
}

static bool is_modern(const struct exchange *x)
{
    return x->n == 1 && x->ops[0].era->modern;
}

/*
 * lighttpd sees a client leave only once the answer has begun. So where leaving is cancelling, the
 * answer begins as a stream before it is there.
 */
static bool streams_later(const struct exchange *x)
{
    const struct op *op = &x->ops[0];
    return x->progress && is_modern(x) && op->waits && op->calling &&
           (op->call.tool->hints & TOOL_CANCELS);
}

/* Until everything is answered. False: the client left, and there is nobody to answer to. */
static bool drive(struct web *w, struct exchange *x, bool *stream)
{
    bool left = false, watch = true, later = !*stream && streams_later(x);
    int64_t last = clock_mono_us();
    while (!exchange_step(x)) {
        int64_t limit = *stream ? last + HEARTBEAT_US : later ? last + STREAM_US : -1;
        left |= wait_for_news(w, watch, limit);
        if (*stream && !left)
            left = send_progress(w, x, &last) < 0;
        if (later && !left && clock_mono_us() >= limit) {
            left = http_stream(w->http) < 0;
            *stream = true;
            later = false;
        }
        if (!left)
            continue;
        /* In the modern era leaving is cancelling; before, the call just loses its reader. */
        if (*stream || is_modern(x)) {
            if (is_modern(x))
                exchange_cancel(x);
            return false;
        }
        watch = left = false;
    }
    return true;
}

static void send_stream_end(struct web *w, const struct exchange *x, const struct buf *out)
{
    const char *note = x->n == 1 ? x->ops[0].notes.p : "";
    if (*note)
        (void)http_event(w->http, note, strlen(note));
    (void)http_event(w->http, out->p, out->len);
}

static void send_answer(struct web *w, const struct exchange *x, bool streaming)
{
    struct buf out = BUF_INIT(RPC_RESPONSE_MAX);
    const char *accept = http_header(w->http, "Accept");
    int status = exchange_status(x);
    exchange_answer(x, &out);
    bool notes = x->n == 1 && x->ops[0].notes.len;
    if (!streaming && status == 200 && out.len && (notes || !web_accepts_json(accept)))
        streaming = http_stream(w->http) == 0;
    if (streaming)
        send_stream_end(w, x, &out);
    else
        (void)http_respond(w->http, status, JSON_TYPE, NULL, out.p, out.len);
    buf_release(&out);
}

static void log_exchange(const struct exchange *x, int status, int64_t since_us)
{
    const struct op *op = x->n ? &x->ops[0] : NULL;
    log_debug("request method=%.40s tool=%.40s status=%d us=%" PRId64,
              op && op->name ? op->name : "-", op && op->calling ? op->call.tool->name : "-",
              status, clock_mono_us() - since_us);
}

static void serve_exchange(struct web *w)
{
    int64_t since = clock_mono_us();
    struct exchange x;
    exchange_init(&x, w->app, w->http, &w->body);
    x.toolsets = w->toolsets;
    x.progress = web_accepts_sse(http_header(w->http, "Accept"));
    exchange_start(&x);
    bool stream = x.n == 1 && x.ops[0].waits && x.ops[0].call.progress;
    if (stream && http_stream(w->http) < 0) {
        if (is_modern(&x))
            exchange_cancel(&x);
    } else if (drive(w, &x, &stream)) {
        send_answer(w, &x, stream);
    }
    log_exchange(&x, w->http->status, since);
    exchange_release(&x);
}

static int serve_mcp(struct web *w)
{
    for (size_t i = 0; i < ARRAY_LEN(rungs); i++)
        if (rungs[i](w) == ANSWERED)
            return ANSWERED;
    serve_exchange(w);
    return ANSWERED;
}

static int serve_health(struct web *w)
{
    if (check_origin(w) == ANSWERED)
        return ANSWERED;
    if (!streq(w->http->method, "GET") && !streq(w->http->method, "HEAD"))
        return refuse(w, 405, "Allow: GET, HEAD\r\n", "GET the health here");
    const struct buf *text;
    int status = health_check(w->app, &text);
    (void)http_respond(w->http, status, JSON_TYPE, NULL, text->p, text->len);
    return ANSWERED;
}

/* Public: who has no token yet asks here where to get one, from any origin. */
static int serve_metadata(struct web *w)
{
    if (!w->app->oauth)
        return not_found(w);
    w->http->cors = "*";
    if (streq(w->http->method, "OPTIONS"))
        return allow(w, "GET");
    if (!streq(w->http->method, "GET") && !streq(w->http->method, "HEAD"))
        return refuse(w, 405, "Allow: GET, HEAD\r\n", "GET the metadata here");
    struct buf text = BUF_INIT(1 << 14);
    oauth_metadata(w->app->oauth, &text);
    (void)http_respond(w->http, 200, JSON_TYPE, NULL, text.p, text.len);
    buf_release(&text);
    return ANSWERED;
}

static const struct {
    const char *path;
    int (*serve)(struct web *w);
} routes[] = {
    {"/mcp", serve_mcp},
    {"/healthz", serve_health},
    {"/.well-known/oauth-protected-resource", serve_metadata},
    {"/.well-known/oauth-protected-resource/mcp", serve_metadata},
};

static bool serve_path(struct web *w, const char *path)
{
    for (size_t i = 0; i < ARRAY_LEN(routes); i++)
        if (streq(routes[i].path, path)) {
            (void)routes[i].serve(w);
            return true;
        }
    return false;
}

void web_serve(struct app *app, struct http *h)
{
    struct web w = {.app = app, .http = h, .toolsets = app->toolsets};
    buf_init(&w.body, 0);
    /* Behind a prefix (a CGI script, a mount point) the path that is ours is in PATH_INFO alone. */
    const char *info = http_var(h, "PATH_INFO");
    if (!serve_path(&w, h->path.p) && !(h->path.len && info && serve_path(&w, info)))
        (void)not_found(&w);
    buf_release(&w.body);
}
