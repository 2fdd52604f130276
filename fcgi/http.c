#include "fcgi/http.h"

#include "common/text.h"

#include <strings.h>

#define PATH_LONGEST 1024

static const struct {
    int status;
    const char *reason;
} reasons[] = {
    {200, "OK"},
    {202, "Accepted"},
    {204, "No Content"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {500, "Internal Server Error"},
    {503, "Service Unavailable"},
};

static const char *reason(int status)
{
    for (size_t i = 0; i < ARRAY_LEN(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Error";
}

/* What a web server decodes and joins differently from another is not a path of ours. */
static bool path_acceptable(const char *p)
{
    if (*p != '/' || strstr(p, "//"))
        return false;
    for (const char *c = p; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return false;
    for (const char *dots = strstr(p, "/.."); dots; dots = strstr(dots + 1, "/.."))
        if (dots[3] == '/' || !dots[3])
            return false;
    return true;
}

void http_init(struct http *h, const struct http_face *face, void *ctx, char **env, int peer_fd)
{
    *h = (struct http){.face = face, .ctx = ctx, .env = env, .peer_fd = peer_fd};
    buf_init(&h->path, PATH_LONGEST);
    const char *method = http_var(h, "REQUEST_METHOD");
    const char *script = http_var(h, "SCRIPT_NAME"), *info = http_var(h, "PATH_INFO");
    h->method = method ? method : "";
    buf_adds(&h->path, script ? script : "");
    buf_adds(&h->path, info ? info : "");
    if (buf_bad(&h->path) || !path_acceptable(h->path.p))
        buf_clear(&h->path);
}

void http_release(struct http *h)
{
    buf_release(&h->path);
}

const char *http_var(const struct http *h, const char *name)
{
    size_t n = strlen(name);
    for (char **v = h->env; *v; v++)
        if (strncmp(*v, name, n) == 0 && (*v)[n] == '=')
            return *v + n + 1;
    return NULL;
}

const char *http_header(const struct http *h, const char *name)
{
    char var[64] = "HTTP_";
    size_t n = strlen(name);
    check(n + 6 <= sizeof var);
    for (size_t i = 0; i <= n; i++) {
        char c = name[i];
        var[5 + i] = (char)(c == '-' ? '_' : c >= 'a' && c <= 'z' ? c - 32 : c);
    }
    return http_var(h, streq(var, "HTTP_CONTENT_TYPE") ? var + 5 : var);
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static void decode(const char *p, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++)
        if (p[i] == '%' && i + 2 < n && hex(p[i + 1]) >= 0 && hex(p[i + 2]) >= 0) {
            buf_addc(out, (char)(hex(p[i + 1]) * 16 + hex(p[i + 2])));
            i += 2;
        } else {
            buf_addc(out, p[i] == '+' ? ' ' : p[i]);
        }
}

bool http_query(const struct http *h, const char *name, struct buf *out)
{
    const char *q = http_var(h, "QUERY_STRING");
    size_t n = strlen(name);
    while (q && *q) {
        size_t len = strcspn(q, "&");
        if (len > n && strncmp(q, name, n) == 0 && q[n] == '=') {
            decode(q + n + 1, len - n - 1, out);
            return true;
        }
        q += len + (q[len] == '&');
    }
    return false;
}

static int too_large(const struct buf *out, struct err *e)
{
    return err_set(e, ERR_LIMIT, "the request body is larger than %zu bytes", out->max);
}

/* Whole body by its declared length; without one, to the end of the stream. */
static int read_body(const struct http *h, struct buf *out, int64_t length, struct err *e)
{
    for (;;) {
        size_t want = length < 0 ? 8192 : (size_t)length - out->len;
        if (!want)
            return 0;
        /* One byte over the maximum is enough to know. */
        char *at = buf_reserve(out, MIN(want, out->max - out->len + (out->max == out->len)));
        if (!at)
            return too_large(out, e);
        ssize_t n = h->face->read(h->ctx, at, MIN(want, out->max - out->len));
        if (n < 0 || (n == 0 && length >= 0))
            return err_set(e, ERR_INVALID, "the request body ended early");
        if (n == 0)
            return 0;
        buf_commit(out, (size_t)n);
    }
}

int http_body(const struct http *h, struct buf *out, struct err *e)
{
    const char *declared = http_var(h, "CONTENT_LENGTH");
    int64_t length = -1;
    if (declared && *declared && text_int(declared, -1, INT64_MAX, &length) < 0)
        return err_set(e, ERR_INVALID, "Content-Length is not a number");
    if (length > (int64_t)out->max)
        return too_large(out, e);
    return read_body(h, out, length, e);
}

static void add_cors(const struct http *h, struct buf *out)
{
    if (h->cors)
        buf_addf(out,
                 "Access-Control-Allow-Origin: %s\r\nVary: Origin\r\n"
                 "Access-Control-Expose-Headers: WWW-Authenticate\r\n",
                 h->cors);
}

int http_respond(struct http *h, int status, const char *type, const char *extra, const char *body,
                 size_t n)
{
    struct buf out = BUF_INIT(n + 4096);
    buf_addf(&out, "Status: %d %s\r\n", status, reason(status));
    if (n)
        buf_addf(&out, "Content-Type: %s\r\n", type);
    if (status != 204)
        buf_addf(&out, "Content-Length: %zu\r\n", n);
    buf_adds(&out, "Cache-Control: no-store\r\n");
    add_cors(h, &out);
    buf_adds(&out, extra ? extra : "");
    buf_adds(&out, "\r\n");
    if (!streq(h->method, "HEAD"))
        buf_add(&out, body, n);
    h->status = status;
    int r = h->face->write(h->ctx, out.p, out.len);
    buf_release(&out);
    return r;
}

static int send_now(struct http *h, const struct buf *out)
{
    return h->face->write(h->ctx, out->p, out->len) < 0 || h->face->flush(h->ctx) < 0 ? -1 : 0;
}

int http_stream(struct http *h)
{
    struct buf out = BUF_INIT(4096);
    buf_adds(&out, "Status: 200 OK\r\nContent-Type: text/event-stream\r\n"
                   "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n");
    add_cors(h, &out);
    buf_adds(&out, "\r\n: hb\n\n");
    h->status = 200;
    int r = send_now(h, &out);
    buf_release(&out);
    return r;
}

int http_comment(struct http *h)
{
    static const char hb[] = ": hb\n\n";
    return h->face->write(h->ctx, hb, sizeof hb - 1) < 0 || h->face->flush(h->ctx) < 0 ? -1 : 0;
}

int http_event(struct http *h, const char *json, size_t n)
{
    struct buf out = BUF_INIT(n + 16);
    buf_adds(&out, "data: ");
    buf_add(&out, json, n);
    buf_adds(&out, "\n\n");
    int r = send_now(h, &out);
    buf_release(&out);
    return r;
}

bool http_media_is(const char *value, const char *type)
{
    size_t n = strlen(type);
    value += strspn(value, " \t");
    return strncasecmp(value, type, n) == 0 && (!value[n] || strchr("; \t,", value[n]));
}
