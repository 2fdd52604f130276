#include "fcgi/tasks.h"

#include "common/clock.h"
#include "fcgi/queries.h"
#include "fcgi/tools.h"

#define POLL_MS 3000

/* What is needed of a job's record. */
struct record {
    char id[ULID_LEN + 1];
    const char *status; /* of the task, static */
    char message[200];
    int64_t started, updated, ttl_ms;
};

static const struct {
    const char *job, *task, *message;
} states[] = {
    {"queued", "working", "the command waits for its sandbox"},
    {"running", "working", "the command is running"},
    {"finished", "completed", "the command has ended"},
    {"timeout", "completed", "the command reached its time limit"},
    {"stopped", "cancelled", "the command was stopped"},
    {"lost", "failed", "the command was lost"},
};

static bool declared(const struct op *op)
{
    const struct json *caps = json_get(op->meta, "io.modelcontextprotocol/clientCapabilities");
    return op->era->modern && json_get(json_get(caps, "extensions"), TASKS_EXTENSION);
}

/* The current row of Q_RUN. */
static void read_record(struct op *op, struct record *r)
{
    struct db *db = &op->app->db;
    const char *status = db_text(db, Q_RUN, 3);
    bool ended = !db_null(db, Q_RUN, 10);
    r->started = db_int(db, Q_RUN, 9);
    r->updated = ended ? db_int(db, Q_RUN, 10) : clock_real_ms();
    r->ttl_ms = db_int(db, Q_RUN, 13) + op->app->settings->job_log_retention * 1000;
    r->status = "failed";
    for (size_t i = 0; i < ARRAY_LEN(states); i++)
        if (streq(states[i].job, status)) {
            r->status = states[i].task;
            (void)snprintf(r->message, sizeof r->message, "%s", states[i].message);
        }
    if (streq(r->status, "failed") && !db_null(db, Q_RUN, 8))
        (void)snprintf(r->message, sizeof r->message, "%.190s", db_text(db, Q_RUN, 8));
}

/* 1 found, 0 there is no such job, -1 error. */
static int find_record(struct op *op, const char *id, struct record *r, struct err *e)
{
    *r = (struct record){.status = "failed"};
    if (!ulid_valid(id))
        return 0;
    memcpy(r->id, id, sizeof r->id);
    int n = app_open(op->app, e) < 0 ? -1 : db_row(&op->app->db, Q_RUN, e, "t", id);
    if (n == 1) {
        read_record(op, r);
        db_done(&op->app->db, Q_RUN);
    }
    return n;
}

static void write_record(struct jw *w, const struct record *r)
{
    char iso[32];
    jw_kstring(w, "taskId", r->id);
    jw_kstring(w, "status", r->status);
    jw_kstring(w, "statusMessage", r->message);
    jw_kstring(w, "createdAt", clock_iso(r->started, iso));
    jw_kstring(w, "lastUpdatedAt", clock_iso(r->updated, iso));
    jw_kint(w, "ttlMs", r->ttl_ms);
    jw_kint(w, "pollIntervalMs", POLL_MS);
}

bool tasks_take(struct op *op)
{
    const struct call *c = &op->call;
    _cleanup_json_ struct json *j = NULL;
    struct err e = ERR_INIT;
    struct record r;
    if (c->is_error || !(c->tool->hints & TOOL_TASK) || !declared(op) ||
        json_parse(c->out.p, c->out.len, &j, &e) < 0)
        return false;
    const char *id = json_get_string(j, "job_id", NULL);
    if (!id || !streq(json_get_string(j, "status", ""), "running") ||
        find_record(op, id, &r, &e) != 1)
        return false;
    struct jw w;
    op_result_of(op, &w, "task");
    write_record(&w, &r);
    (void)op_result_end(op, &w);
    return true;
}

/* --- the methods ---------------------------------------------------------------------------- */

static int not_declared(struct op *op)
{
    return op_fail(op, RPC_CAPABILITY,
                   "{\"requiredCapabilities\":{\"extensions\":{\"" TASKS_EXTENSION "\":{}}}}",
                   "this needs the client capability " TASKS_EXTENSION);
}

/* True: the record is there. False: the answer, an error, is written. */
static bool named_task(struct op *op, struct record *r)
{
    const struct json *id = json_get(op->params, "taskId");
    struct err e = ERR_INIT;
    if (!declared(op)) {
        (void)not_declared(op);
        return false;
    }
    if (!id || json_type(id) != JSON_STRING) {
        (void)op_fail(op, RPC_PARAMS, NULL, "params.taskId must be a string");
        return false;
    }
    int n = find_record(op, json_string(id), r, &e);
    if (n < 0)
        (void)op_fail(op, RPC_INTERNAL, NULL, "%s", e.msg);
    if (n == 0)
        (void)op_fail(op, RPC_PARAMS, NULL, "there is no such task, or its record has expired");
    return n == 1;
}

/* Begin a call of one of our tools for this task. */
static int call_tool(struct op *op, const char *tool, const char *rest)
{
    struct buf text = BUF_INIT(256);
    struct args args = {0};
    struct err e = ERR_INIT;
    buf_addf(&text, "{\"job_id\":\"%s\"%s}", json_get_string(op->params, "taskId", ""), rest);
    check(json_parse(text.p, text.len, &op->own_args, &e) == 0);
    buf_release(&text);
    args.obj = op->own_args;
    call_init(&op->call, op->app, tools_find(tool, SET_ALL, &args.renames), args);
    op->calling = true;
    return call_start(&op->call);
}

static void write_outcome(struct op *op, struct jw *w, const struct record *r)
{
    if (streq(r->status, "failed")) {
        jw_key(w, "error");
        jw_object(w);
        jw_kint(w, "code", -32603);
        jw_kstring(w, "message", r->message);
        jw_end_object(w);
    } else if (streq(r->status, "completed")) {
        jw_key(w, "result");
        jw_object(w);
        mcp_write_call(op, w);
        jw_end_object(w);
    }
}

int tasks_get(struct op *op)
{
    struct record r;
    struct jw w;
    if (!named_task(op, &r))
        return CALL_DONE;
    if (streq(r.status, "completed"))
        (void)call_tool(op, "get_job", ",\"wait\":0");
    op_result(op, &w);
    write_record(&w, &r);
    write_outcome(op, &w, &r);
    return op_result_end(op, &w);
}

static int acknowledge(struct op *op)
{
    struct jw w;
    op_result(op, &w);
    return op_result_end(op, &w);
}

/* Cancelling is a wish: that the job had ended already is no error, an absent runner is one. */
static int cancel_done(struct op *op)
{
    struct record r;
    struct err e = ERR_INIT;
    const struct call *c = &op->call;
    if (c->is_error && find_record(op, json_get_string(op->params, "taskId", ""), &r, &e) == 1 &&
        streq(r.status, "working"))
        return op_fail(op, RPC_INTERNAL, c->out.p, "the job could not be stopped");
    return acknowledge(op);
}

int tasks_cancel(struct op *op)
{
    struct record r;
    if (!named_task(op, &r))
        return CALL_DONE;
    if (!streq(r.status, "working"))
        return acknowledge(op);
    op->finish = cancel_done;
    return call_tool(op, "stop_job", "") == CALL_WAITS ? CALL_WAITS : cancel_done(op);
}

/* No task ever asks for input. */
int tasks_update(struct op *op)
{
    struct record r;
    return named_task(op, &r) ? acknowledge(op) : CALL_DONE;
}
