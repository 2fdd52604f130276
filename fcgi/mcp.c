#include "fcgi/rpc.h"

#include "common/embed.h"
#include "common/text.h"
#include "fcgi/extra.h"
#include "fcgi/tasks.h"
#include "fcgi/tools.h"

EMBED(instructions, "fcgi/instructions.txt");

#define META_VERSION      "io.modelcontextprotocol/protocolVersion"
#define META_CAPABILITIES "io.modelcontextprotocol/clientCapabilities"
#define META_SUBSCRIPTION "io.modelcontextprotocol/subscriptionId"

static const char *const modern_versions[] = {"2026-07-28"};
static const char *const legacy_versions[] = {"2025-11-25", "2025-06-18", "2025-03-26",
                                              "2024-11-05", "2024-10-07"};

static bool listed(const char *s, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (streq(list[i], s))
            return true;
    return false;
}

bool mcp_modern_version(const char *version)
{
    return strcmp(version, modern_versions[0]) >= 0;
}

/* --- methods -------------------------------------------------------------------------------- */

static void write_capabilities(struct jw *w, bool modern)
{
    jw_key(w, "capabilities");
    jw_object(w);
    jw_key(w, "tools");
    jw_object(w);
    jw_end_object(w);
    if (modern) {
        jw_key(w, "extensions");
        jw_object(w);
        jw_key(w, TASKS_EXTENSION);
        jw_object(w);
        jw_end_object(w);
        jw_end_object(w);
    }
    if (extra.capabilities)
        buf_addf(w->out, ",%s", extra.capabilities);
    jw_end_object(w);
}

static int run_initialize(struct op *op)
{
    const char *asked = json_get_string(op->params, "protocolVersion", "");
    bool known = listed(asked, legacy_versions, ARRAY_LEN(legacy_versions));
    struct jw w;
    op_result(op, &w);
    jw_kstring(&w, "protocolVersion", known ? asked : legacy_versions[0]);
    write_capabilities(&w, false);
    jw_key(&w, "serverInfo");
    jw_object(&w);
    jw_kstring(&w, "name", "sandbox-mcp");
    jw_kstring(&w, "title", "Sandbox MCP");
    jw_kstring(&w, "version", SMCP_VERSION);
    jw_end_object(&w);
    jw_kstring(&w, "instructions", instructions);
    return op_result_end(op, &w);
}

static int run_discover(struct op *op)
{
    struct jw w;
    op_result(op, &w);
    jw_key(&w, "supportedVersions");
    jw_array(&w);
    for (size_t i = 0; i < ARRAY_LEN(modern_versions); i++)
        jw_string(&w, modern_versions[i]);
    jw_end_array(&w);
    write_capabilities(&w, true);
    jw_kstring(&w, "instructions", instructions);
    return op_result_end(op, &w);
}

static int run_ping(struct op *op)
{
    struct jw w;
    op_result(op, &w);
    return op_result_end(op, &w);
}

static int run_tools_list(struct op *op)
{
    const struct json *cursor = json_get(op->params, "cursor");
    if (cursor && json_type(cursor) != JSON_NULL &&
        (json_type(cursor) != JSON_STRING || *json_string(cursor)))
        return op_fail(op, RPC_PARAMS, NULL, "there is no such cursor: the list has one page");
    struct jw w;
    op_result(op, &w);
    jw_key(&w, "tools");
    tools_list(op->toolsets, &w);
    return op_result_end(op, &w);
}

static int unknown_tool(struct op *op, const char *name)
{
    struct buf shown = BUF_INIT(400), names = BUF_INIT(700);
    const char *near = tools_nearest(name, op->toolsets);
    text_excerpt(&shown, name, strlen(name), 64);
    tools_names(op->toolsets, &names);
    int r = op_fail(op, RPC_PARAMS, NULL, "Unknown tool: %s.%s%s%s The tools are: %s", shown.p,
                    near ? " Did you mean " : "", near ? near : "", near ? "?" : "", names.p);
    buf_release(&shown);
    buf_release(&names);
    return r;
}

/* Progress is sent when the face can, the tool reports some and the client gave a token. */
static bool wants_progress(const struct op *op, const struct tool *t)
{
    const struct json *token = json_get(op->meta, "progressToken");
    return op->call.progress && !op->batch && (t->hints & TOOL_PROGRESS) && token &&
           (json_type(token) == JSON_STRING || json_is_int(token));
}

int mcp_tools_call(struct op *op)
{
    const struct json *name = json_get(op->params, "name");
    const struct json *arguments = json_get(op->params, "arguments");
    if (!name || json_type(name) != JSON_STRING)
        return op_fail(op, RPC_PARAMS, NULL, "params.name must be the name of a tool");
    if (arguments && json_type(arguments) == JSON_NULL)
        arguments = NULL;
    if (arguments && json_type(arguments) != JSON_OBJECT)
        return op_fail(op, RPC_PARAMS, NULL, "params.arguments must be an object, not %s",
                       json_type_name(json_type(arguments)));
    struct args args = {.obj = arguments};
    const struct tool *t = tools_find(json_string(name), op->toolsets, &args.renames);
    if (!t)
        return unknown_tool(op, json_string(name));
    bool progress = wants_progress(op, t);
    call_init(&op->call, op->app, t, args);
    op->call.progress = progress;
    op->calling = true;
    return call_start(&op->call) == CALL_WAITS ? CALL_WAITS : mcp_finish_call(op);
}

static void write_text_content(struct jw *w, const struct buf *text)
{
    jw_key(w, "content");
    jw_array(w);
    jw_object(w);
    jw_kstring(w, "type", "text");
    jw_key(w, "text");
    jw_string_n(w, text->p, text->len);
    jw_end_object(w);
    jw_end_array(w);
}

void mcp_write_call(const struct op *op, struct jw *w)
{
    const struct call *c = &op->call;
    bool blocks = (c->tool->hints & TOOL_CONTENT) && !c->is_error;
    if (blocks)
        jw_kraw(w, "content", c->out.p, c->out.len);
    else
        write_text_content(w, &c->out);
    if (!blocks && !c->is_error)
        jw_kraw(w, "structuredContent", c->out.p, c->out.len);
    jw_kbool(w, "isError", c->is_error);
}

int mcp_finish_call(struct op *op)
{
    struct jw w;
    if (tasks_take(op))
        return CALL_DONE;
    op_result(op, &w);
    mcp_write_call(op, &w);
    return op_result_end(op, &w);
}

/* Nothing is ever announced, so a subscription is acknowledged as empty and ends at once. */
static int run_listen(struct op *op)
{
    struct jw w = JW_INIT(&op->notes);
    jw_object(&w);
    jw_kstring(&w, "jsonrpc", "2.0");
    jw_kstring(&w, "method", "notifications/subscriptions/acknowledged");
    jw_key(&w, "params");
    jw_object(&w);
    jw_key(&w, "_meta");
    jw_object(&w);
    jw_kraw(&w, META_SUBSCRIPTION, op->id.p, op->id.len);
    jw_end_object(&w);
    jw_key(&w, "notifications");
    jw_object(&w);
    jw_end_object(&w);
    jw_end_object(&w);
    jw_end_object(&w);
    buf_clear(&op->out);
    w = (struct jw)JW_INIT(&op->out);
    jw_object(&w);
    jw_kstring(&w, "jsonrpc", "2.0");
    jw_kraw(&w, "id", op->id.p, op->id.len);
    jw_key(&w, "result");
    jw_object(&w);
    jw_kstring(&w, "resultType", "complete");
    jw_key(&w, "_meta");
    jw_object(&w);
    jw_kraw(&w, META_SUBSCRIPTION, op->id.p, op->id.len);
    jw_end_object(&w);
    jw_end_object(&w);
    jw_end_object(&w);
    return CALL_DONE;
}

/* --- the two eras --------------------------------------------------------------------------- */

// clang-format off
static const struct method legacy_methods[] = {
    {"initialize",           0,      run_initialize},
    {"ping",                 0,      run_ping},
    {"tools/list",           0,      run_tools_list},
    {"tools/call",           0,      mcp_tools_call},
};

static const struct method modern_methods[] = {
    {"server/discover",      300000, run_discover},
    {"tools/list",           60000,  run_tools_list},
    {"tools/call",           0,      mcp_tools_call},
    {"tasks/get",            0,      tasks_get},
    {"tasks/cancel",         0,      tasks_cancel},
    {"tasks/update",         0,      tasks_update},
    {"subscriptions/listen", 0,      run_listen},
};

static const struct era legacy = {"legacy", false, legacy_methods, ARRAY_LEN(legacy_methods)};
static const struct era modern = {"modern", true,  modern_methods, ARRAY_LEN(modern_methods)};

/* The parameter that the header Mcp-Name repeats; also for methods that are not offered. */
static const struct { const char *method, *param; } named[] = {
    {"tools/call", "name"}, {"prompts/get", "name"}, {"resources/read", "uri"},
    {"tasks/get", "taskId"}, {"tasks/cancel", "taskId"}, {"tasks/update", "taskId"},
};
// clang-format on

/* --- the ladder, from the envelope on (its first part, the HTTP rungs, is in web.c) --------- */

enum { GO_ON = 2 }; /* besides CALL_DONE and CALL_WAITS: the message passes this rung */

static const char *version_header(const struct op *op)
{
    const char *v = op->http ? http_header(op->http, "MCP-Protocol-Version") : NULL;
    return v && *v ? v : NULL;
}

/* From this message alone: nothing is remembered of an earlier one. */
static const struct era *decide_era(const struct op *op)
{
    if (json_get(op->meta, META_VERSION))
        return &modern;
    if (op->name && streq(op->name, "initialize"))
        return &legacy;
    const char *v = version_header(op);
    return v && mcp_modern_version(v) ? &modern : &legacy;
}

static const struct json *object_or_null(const struct json *j)
{
    return j && json_type(j) == JSON_OBJECT ? j : NULL;
}

static bool id_acceptable(const struct json *id)
{
    return !id || json_type(id) == JSON_STRING || json_is_int(id);
}

static int check_shape(struct op *op)
{
    const struct json *method = json_get(op->msg, "method"), *id = json_get(op->msg, "id");
    if (method && json_type(method) == JSON_STRING)
        op->name = json_string(method);
    op->params = object_or_null(json_get(op->msg, "params"));
    op->meta = object_or_null(json_get(op->params, "_meta"));
    op->era = decide_era(op);
    if (!id_acceptable(id))
        buf_clear(&op->id);
    if (json_type(op->msg) != JSON_OBJECT)
        return op_fail(op, RPC_REQUEST, NULL, "a message is a JSON object");
    if (!streq(json_get_string(op->msg, "jsonrpc", ""), "2.0"))
        return op_fail(op, RPC_REQUEST, NULL, "\"jsonrpc\" must be \"2.0\"");
    if (!id_acceptable(id))
        return op_fail(op, RPC_REQUEST, NULL, "\"id\" must be a string or a whole number");
    if (method && !op->name)
        return op_fail(op, RPC_REQUEST, NULL, "\"method\" must be a string");
    return GO_ON;
}

/* Notifications, and responses to questions that we never ask. */
static int check_one_way(struct op *op)
{
    if (op->name && op->id.len)
        return GO_ON;
    if (!op->name && !json_get(op->msg, "result") && !json_get(op->msg, "error"))
        return op_fail(op, RPC_REQUEST, NULL, "\"method\" is missing");
    if (!op->name && op->era->modern)
        return op_fail(op, RPC_REQUEST, NULL, "a response is not expected here");
    op->status = 202;
    return CALL_DONE;
}

static int check_meta(struct op *op)
{
    const struct json *version = json_get(op->meta, META_VERSION);
    const struct json *caps = json_get(op->meta, META_CAPABILITIES);
    if (!version || json_type(version) != JSON_STRING)
        return op_fail(op, RPC_META, NULL, "params._meta needs the string \"" META_VERSION "\"");
    if (!caps || json_type(caps) != JSON_OBJECT)
        return op_fail(op, RPC_META, NULL,
                       "params._meta needs the object \"" META_CAPABILITIES "\"");
    return GO_ON;
}

static int check_version_header(struct op *op)
{
    const char *header = version_header(op);
    if (header && streq(header, json_string(json_get(op->meta, META_VERSION))))
        return GO_ON;
    return op_fail(op, RPC_HEADER, NULL, "the header MCP-Protocol-Version %s",
                   header ? "differs from params._meta" : "is missing");
}

static int check_version(struct op *op)
{
    const char *asked = json_string(json_get(op->meta, META_VERSION));
    if (listed(asked, modern_versions, ARRAY_LEN(modern_versions)))
        return GO_ON;
    struct buf data = BUF_INIT(1 << 20);
    struct jw w = JW_INIT(&data);
    jw_object(&w);
    jw_key(&w, "supported");
    jw_array(&w);
    for (size_t i = 0; i < ARRAY_LEN(modern_versions); i++)
        jw_string(&w, modern_versions[i]);
    jw_end_array(&w);
    jw_kstring(&w, "requested", asked);
    jw_end_object(&w);
    int r =
        op_fail(op, RPC_VERSION, buf_bad(&data) ? NULL : data.p, "Unsupported protocol version");
    buf_release(&data);
    return r;
}

static int check_method_header(struct op *op)
{
    const char *header = http_header(op->http, "Mcp-Method");
    if (header && streq(header, op->name))
        return GO_ON;
    return op_fail(op, RPC_HEADER, NULL, "the header Mcp-Method %s",
                   header ? "differs from \"method\"" : "is missing");
}

/* "=?base64?...?=" is decoded, anything else is literal. -1: broken. */
static int decode_header(const char *v, struct buf *out)
{
    static const char front[] = "=?base64?";
    size_t n = strlen(v), f = sizeof front - 1;
    if (n < f + 2 || strncmp(v, front, f) != 0 || !streq(v + n - 2, "?=")) {
        buf_adds(out, v);
        return 0;
    }
    if (text_unbase64(out, v + f, n - f - 2) < 0 || !text_utf8_valid(out->p, out->len))
        return -1;
    return 0;
}

static int check_name_header(struct op *op)
{
    const char *param = NULL, *header = http_header(op->http, "Mcp-Name");
    for (size_t i = 0; i < ARRAY_LEN(named); i++)
        if (streq(named[i].method, op->name))
            param = named[i].param;
    if (!param)
        return GO_ON;
    struct buf value = BUF_INIT(16384);
    const struct json *p = json_get(op->params, param);
    bool same = header && decode_header(header, &value) == 0 && p && json_type(p) == JSON_STRING &&
                strlen(json_string(p)) == value.len && streq(json_string(p), value.p);
    buf_release(&value);
    if (same)
        return GO_ON;
    return op_fail(op, RPC_HEADER, NULL, "the header Mcp-Name %s params.%s",
                   header ? "differs from" : "is missing; it repeats", param);
}

/* Not for initialize: some clients name their newest version there. */
static int check_legacy_header(struct op *op)
{
    const char *v = version_header(op);
    if (!v || streq(op->name, "initialize") ||
        listed(v, legacy_versions, ARRAY_LEN(legacy_versions)))
        return GO_ON;
    return op_fail(op, RPC_REQUEST, NULL, "the header MCP-Protocol-Version is none of ours");
}

static int check_batch_member(struct op *op)
{
    if (op->batch && streq(op->name, "initialize"))
        return op_fail(op, RPC_REQUEST, NULL, "initialize must not be part of a batch");
    return GO_ON;
}

static const struct method *find_method(const struct method *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (streq(list[i].name, name))
            return &list[i];
    return NULL;
}

static int check_method(struct op *op)
{
    op->method = find_method(extra.methods, extra.n_methods, op->name);
    if (!op->method)
        op->method = find_method(op->era->methods, op->era->n_methods, op->name);
    if (op->method)
        return GO_ON;
    struct buf shown = BUF_INIT(400);
    text_excerpt(&shown, op->name, strlen(op->name), 80);
    int r = op_fail(op, RPC_METHOD, NULL, "Method not found: %s", shown.p);
    buf_release(&shown);
    return r;
}

static int check_params(struct op *op)
{
    const struct json *p = json_get(op->msg, "params");
    if (!p || op->params || json_type(p) == JSON_NULL)
        return GO_ON;
    return op_fail(op, RPC_PARAMS, NULL, "\"params\" must be an object");
}

enum { MODERN = 1, LEGACY = 2, HTTP = 4 };

static const struct {
    unsigned when; /* eras; HTTP: not on stdio */
    int (*rung)(struct op *op);
} ladder[] = {
    {MODERN | LEGACY, check_shape},
    {MODERN | LEGACY, check_one_way},
    {MODERN, check_meta},
    {MODERN | HTTP, check_version_header},
    {MODERN, check_version},
    {MODERN | HTTP, check_method_header},
    {MODERN | HTTP, check_name_header},
    {LEGACY | HTTP, check_legacy_header},
    {LEGACY, check_batch_member},
    {MODERN | LEGACY, check_method},
    {MODERN | LEGACY, check_params},
};

int mcp_start(struct op *op)
{
    op->era = &legacy;
    for (size_t i = 0; i < ARRAY_LEN(ladder); i++) {
        unsigned when = ladder[i].when;
        if (!(when & (op->era->modern ? MODERN : LEGACY)) || ((when & HTTP) && !op->http))
            continue;
        int r = ladder[i].rung(op);
        if (r != GO_ON)
            return r;
    }
    return op->method->run(op);
}
