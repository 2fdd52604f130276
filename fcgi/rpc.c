#include "fcgi/rpc.h"

#include "common/clock.h"
#include "common/text.h"

static const struct {
    int code;
    int modern, legacy; /* HTTP status: what 2025-11-25 clients see as 4xx, they cannot read */
} errors[] = {
    [RPC_PARSE] = {-32700, 400, 400},   [RPC_REQUEST] = {-32600, 400, 400},
    [RPC_METHOD] = {-32601, 404, 200},  [RPC_PARAMS] = {-32602, 200, 200},
    [RPC_META] = {-32602, 400, 400},    [RPC_INTERNAL] = {-32603, 200, 200},
    [RPC_HEADER] = {-32020, 400, 400},  [RPC_CAPABILITY] = {-32021, 400, 200},
    [RPC_VERSION] = {-32022, 400, 200},
};

void rpc_error_text(struct buf *out, bool modern, const char *id, enum rpc_error error,
                    const char *data, const char *message)
{
    struct jw w = JW_INIT(out);
    struct buf clean = BUF_INIT(8192);
    (void)text_clean(&clean, message, strlen(message), 0);
    jw_object(&w);
    jw_kstring(&w, "jsonrpc", "2.0");
    if (id && *id)
        jw_kraw(&w, "id", id, strlen(id));
    else if (!modern)
        jw_knull(&w, "id");
    jw_key(&w, "error");
    jw_object(&w);
    jw_kint(&w, "code", errors[error].code);
    jw_kstring(&w, "message", clean.p);
    if (data)
        jw_kraw(&w, "data", data, strlen(data));
    jw_end_object(&w);
    jw_end_object(&w);
    buf_release(&clean);
}

int op_fail(struct op *op, enum rpc_error error, const char *data, const char *fmt, ...)
{
    char message[1024];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(message, sizeof message, fmt, ap);
    va_end(ap);
    bool modern = op->era->modern;
    op->status = modern ? errors[error].modern : errors[error].legacy;
    buf_clear(&op->out);
    rpc_error_text(&op->out, modern, op->id.p, error, data, message);
    return CALL_DONE;
}

void op_result_of(struct op *op, struct jw *w, const char *type)
{
    buf_clear(&op->out);
    *w = (struct jw)JW_INIT(&op->out);
    jw_object(w);
    jw_kstring(w, "jsonrpc", "2.0");
    jw_kraw(w, "id", op->id.p, op->id.len);
    jw_key(w, "result");
    jw_object(w);
    if (op->era->modern)
        jw_kstring(w, "resultType", type);
}

void op_result(struct op *op, struct jw *w)
{
    op_result_of(op, w, "complete");
}

static void server_info_meta(struct jw *w)
{
    jw_key(w, "_meta");
    jw_object(w);
    jw_key(w, "io.modelcontextprotocol/serverInfo");
    jw_object(w);
    jw_kstring(w, "name", "sandbox-mcp");
    jw_kstring(w, "title", "Sandbox MCP");
    jw_kstring(w, "version", SMCP_VERSION);
    jw_end_object(w);
    jw_end_object(w);
}

int op_result_end(struct op *op, struct jw *w)
{
    if (op->era->modern) {
        if (op->method->ttl_ms) {
            jw_kint(w, "ttlMs", op->method->ttl_ms);
            jw_kstring(w, "cacheScope", "private");
        }
        server_info_meta(w);
    }
    jw_end_object(w);
    jw_end_object(w);
    if (buf_bad(&op->out))
        return op_fail(op, RPC_INTERNAL, NULL, "the result is too large");
    return CALL_DONE;
}

void exchange_init(struct exchange *x, struct app *app, const struct http *http, struct buf *body)
{
    *x = (struct exchange){.app = app, .http = http, .toolsets = app->toolsets, .status = 200};
    buf_init(&x->error, RPC_RESPONSE_MAX);
    x->body = *body;
    buf_init(body, body->max);
}

static void op_init(struct exchange *x, struct op *op, const struct json *msg)
{
    *op = (struct op){.app = x->app,
                      .http = x->http,
                      .msg = msg,
                      .batch = x->batch,
                      .toolsets = x->toolsets,
                      .status = 200};
    op->call.progress = x->progress; /* tools/call looks whether it applies */
    buf_init(&op->id, 1 << 16);
    buf_init(&op->notes, 1 << 16);
    buf_init(&op->out, RPC_RESPONSE_MAX);
    const struct json *id = json_type(msg) == JSON_OBJECT ? json_get(msg, "id") : NULL;
    if (id && x->big_id)
        buf_adds(&op->id, x->big_id);
    else if (id)
        json_print(id, &op->id);
}

void exchange_release(struct exchange *x)
{
    for (size_t i = 0; i < x->n; i++) {
        struct op *op = &x->ops[i];
        if (op->calling)
            call_release(&op->call);
        op->own_args = json_free(op->own_args);
        buf_release(&op->id);
        buf_release(&op->notes);
        buf_release(&op->out);
    }
    free(x->ops);
    free(x->big_id);
    buf_release(&x->body);
    buf_release(&x->error);
    x->tree = json_free(x->tree);
    x->ops = NULL;
    x->big_id = NULL;
    x->n = 0;
}

/*
 * The parser refuses whole numbers that a double cannot hold, but an id is only echoed. When
 * parsing has failed, look for such an id at the top level, keep its digits and put a 0 in their
 * place. Returns whether there was one. The text may be anything.
 */
static bool hide_big_id(struct exchange *x)
{
    char *p = x->body.p;
    int depth = 0;
    for (size_t i = 0; i < x->body.len; i++) {
        depth += (p[i] == '{' || p[i] == '[') - (p[i] == '}' || p[i] == ']');
        if (p[i] != '"')
            continue;
        size_t from = ++i;
        while (i < x->body.len && p[i] != '"')
            i += 1 + (p[i] == '\\');
        if (depth != 1 || i >= x->body.len || i - from != 2 || memcmp(p + from, "id", 2) != 0)
            continue;
        size_t at = i + 1 + strspn(p + i + 1, " \t\r\n");
        if (p[at] != ':')
            continue;
        at += 1 + strspn(p + at + 1, " \t\r\n");
        size_t sign = p[at] == '-', n = sign + strspn(p + at + sign, "0123456789");
        if (n < 16 || n > 64 || p[at + sign] == '0' || strchr(".eE", p[at + n]))
            continue;
        x->big_id = xstrndup(p + at, n);
        memset(p + at, ' ', n);
        p[at] = '0';
        return true;
    }
    return false;
}

static void fail_whole(struct exchange *x, enum rpc_error error, const char *message)
{
    const char *version = x->http ? http_header(x->http, "MCP-Protocol-Version") : NULL;
    x->status = errors[error].modern;
    rpc_error_text(&x->error, version && mcp_modern_version(version), NULL, error, NULL, message);
}

static bool has_modern_meta(const struct json *msg)
{
    const struct json *meta = json_get(json_get(msg, "params"), "_meta");
    return json_get(meta, "io.modelcontextprotocol/protocolVersion") != NULL;
}

/* Arrays exist in 2025-03-26 only; what is no member of that era makes the whole one invalid. */
static const char *batch_refused(const struct exchange *x)
{
    const char *version = x->http ? http_header(x->http, "MCP-Protocol-Version") : NULL;
    size_t n = json_len(x->tree);
    if (version && *version && !streq(version, "2025-03-26"))
        return "batches exist in protocol version 2025-03-26 only";
    if (n == 0 || n > RPC_BATCH_MAX)
        return "a batch has 1 to 32 messages";
    for (const struct json *m = json_first(x->tree); m; m = json_next(m))
        if (has_modern_meta(m))
            return "batches exist in protocol version 2025-03-26 only";
    return NULL;
}

static bool parse(struct exchange *x)
{
    struct err e = ERR_INIT;
    if (json_parse(x->body.p, x->body.len, &x->tree, &e) == 0)
        return true;
    struct err second = ERR_INIT;
    if (hide_big_id(x) && json_parse(x->body.p, x->body.len, &x->tree, &second) == 0)
        return true;
    fail_whole(x, RPC_PARSE, e.msg);
    return false;
}

void exchange_start(struct exchange *x)
{
    if (!parse(x))
        return;
    x->batch = json_type(x->tree) == JSON_ARRAY;
    const char *refused = x->batch ? batch_refused(x) : NULL;
    if (refused) {
        fail_whole(x, RPC_REQUEST, refused);
        return;
    }
    size_t n = x->batch ? json_len(x->tree) : 1;
    x->ops = xcalloc(n, sizeof *x->ops);
    x->n = n;
    const struct json *msg = x->batch ? json_first(x->tree) : x->tree;
    for (size_t i = 0; i < n; i++) {
        op_init(x, &x->ops[i], msg);
        msg = x->batch ? json_next(msg) : NULL;
    }
    for (size_t i = 0; i < n; i++)
        x->ops[i].waits = mcp_start(&x->ops[i]) == CALL_WAITS;
}

bool exchange_step(struct exchange *x)
{
    bool done = true;
    for (size_t i = 0; i < x->n; i++) {
        struct op *op = &x->ops[i];
        if (op->waits && call_ready(&op->call)) {
            op->waits = call_resume(&op->call) == CALL_WAITS;
            if (!op->waits)
                (void)(op->finish ? op->finish : mcp_finish_call)(op);
        }
        done &= !op->waits;
    }
    return done;
}

int exchange_status(const struct exchange *x)
{
    if (x->n == 0)
        return x->status;
    if (!x->batch)
        return x->ops[0].status;
    for (size_t i = 0; i < x->n; i++)
        if (x->ops[i].out.len)
            return 200;
    return 202;
}

void exchange_answer(const struct exchange *x, struct buf *out)
{
    if (x->n == 0) {
        buf_add(out, x->error.p, x->error.len);
        return;
    }
    size_t written = 0;
    for (size_t i = 0; i < x->n; i++) {
        const struct op *op = &x->ops[i];
        if (!op->out.len || op->dropped)
            continue;
        if (x->batch)
            buf_addc(out, written++ ? ',' : '[');
        buf_add(out, op->out.p, op->out.len);
    }
    if (written)
        buf_addc(out, ']');
}

/* A plain exec is stopped; a job, and what only looks or takes a moment, goes on. */
static void cancel_run(struct op *op)
{
    struct runner *r = &op->app->runner;
    struct runner_request q;
    struct err e = ERR_INIT;
    char args[64];
    (void)snprintf(args, sizeof args, "{\"request\":%" PRId64 "}", op->call.request.id);
    runner_request_init(&q);
    if (runner_submit(r, &q, "cancel", args, 0, &e) < 0)
        return;
    int64_t until = clock_mono_us() + 2000000;
    while (q.reply == REPLY_PENDING && clock_mono_us() < until) {
        struct pollfd fds[RUNNER_POLL_FDS];
        size_t n = runner_poll(r, fds);
        (void)poll(fds, n, 200);
        runner_dispatch(r);
    }
    runner_request_release(r, &q);
}

void exchange_cancel(struct exchange *x)
{
    for (size_t i = 0; i < x->n; i++) {
        struct op *op = &x->ops[i];
        if (op->waits && (op->call.tool->hints & TOOL_CANCELS))
            cancel_run(op);
        op->waits = false;
        op->dropped = true;
    }
}

bool op_take_progress(struct op *op, struct buf *out)
{
    const struct buf *text = &op->call.request.progress;
    _cleanup_json_ struct json *j = NULL;
    struct err e = ERR_INIT;
    if (!op->waits || !op->call.progress || !op->call.request.progressed)
        return false;
    op->call.request.progressed = false;
    int r = json_parse(text->p, text->len, &j, &e);
    if (r < 0)
        return false;
    op->progress_ms = MAX(json_get_int(j, "elapsed_ms", 0), op->progress_ms + 1);
    struct jw w = JW_INIT(out);
    jw_object(&w);
    jw_kstring(&w, "jsonrpc", "2.0");
    jw_kstring(&w, "method", "notifications/progress");
    jw_key(&w, "params");
    jw_object(&w);
    jw_key(&w, "progressToken");
    jw_json(&w, json_get(op->meta, "progressToken"));
    jw_kreal(&w, "progress", (double)op->progress_ms / 1000);
    jw_kstring(&w, "message", json_get_string(j, "message", NULL));
    jw_end_object(&w);
    jw_end_object(&w);
    return true;
}
