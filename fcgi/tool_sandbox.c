#include "fcgi/tool.h"

#include "common/clock.h"
#include "common/text.h"
#include "fcgi/queries.h"

/* Columns of Q_SANDBOXES. */
enum {
    S_NAME,
    S_STATE,
    S_IMAGE,
    S_CREATED,
    S_USED,
    S_EXPIRES,
    S_PARENT,
    S_CPUS,
    S_MEMORY,
    S_PIDS,
    S_NETWORK,
    S_JOBS,
    S_LAST_RUN
};

static void write_time(struct jw *w, const char *key, int64_t ms)
{
    char iso[32];
    jw_kstring(w, key, clock_iso(ms, iso));
}

static void write_sandbox(struct db *db, struct jw *w)
{
    const size_t q = Q_SANDBOXES;
    jw_object(w);
    jw_kstring(w, "name", db_text(db, q, S_NAME));
    jw_kstring(w, "status", db_text(db, q, S_STATE));
    jw_kstring(w, "image", db_text(db, q, S_IMAGE));
    write_time(w, "created_at", db_int(db, q, S_CREATED));
    write_time(w, "last_used", MAX(db_int(db, q, S_USED), db_int(db, q, S_LAST_RUN)));
    if (!db_null(db, q, S_EXPIRES))
        write_time(w, "expires_at", db_int(db, q, S_EXPIRES));
    if (!db_null(db, q, S_PARENT))
        jw_kstring(w, "parent", db_text(db, q, S_PARENT));
    jw_key(w, "limits");
    jw_object(w);
    jw_kreal(w, "cpus", db_real(db, q, S_CPUS));
    jw_kint(w, "memory", db_int(db, q, S_MEMORY));
    jw_kint(w, "pids", db_int(db, q, S_PIDS));
    jw_kstring(w, "network", db_text(db, q, S_NETWORK));
    jw_end_object(w);
    jw_kint(w, "running_jobs", db_int(db, q, S_JOBS));
    jw_end_object(w);
}

int tool_list_sandboxes(struct call *c)
{
    struct jw w = JW_INIT(&c->out);
    jw_object(&w);
    jw_key(&w, "items");
    jw_array(&w);
    int n = db_row(&c->app->db, Q_SANDBOXES, &c->err, "");
    for (; n == 1; n = db_next(&c->app->db, Q_SANDBOXES, &c->err))
        write_sandbox(&c->app->db, &w);
    jw_end_array(&w);
    jw_end_object(&w);
    return n < 0 ? CALL_FAILED : CALL_DONE;
}

static int write_memory(struct call *c, struct jw *w)
{
    const struct json *j = args_get(&c->args, "memory");
    int64_t bytes;
    if (!j)
        return 0;
    if (json_type(j) == JSON_NUMBER) {
        bytes = json_int(j);
    } else if (settings_parse_bytes(json_string(j), &bytes) < 0) {
        struct buf shown = BUF_INIT(400);
        text_excerpt(&shown, json_string(j), strlen(json_string(j)), 64);
        err_set(&c->err, ERR_INVALID, "the argument \"memory\" is \"%s\"", shown.p);
        buf_release(&shown);
        return err_fix(&c->err, "invalid_argument", "give a size such as 512m or 2g");
    }
    jw_kint(w, "memory", bytes);
    return 0;
}

static int write_create(struct call *c, struct jw *w)
{
    static const char *const texts[] = {"image", "network", "runtime"};
    const char *sandbox = call_sandbox(c);
    if (!sandbox || write_memory(c, w) < 0)
        return -1;
    jw_kstring(w, "sandbox", sandbox);
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        jw_kstring(w, texts[i], args_string(&c->args, texts[i], NULL));
    if (args_has(&c->args, "cpus"))
        jw_kreal(w, "cpus", args_number(&c->args, "cpus", 0));
    if (args_has(&c->args, "ttl_seconds"))
        jw_kint(w, "ttl_seconds", args_int(&c->args, "ttl_seconds", 0));
    if (c->progress)
        jw_kbool(w, "progress", true);
    return call_write_env(c, w);
}

int tool_create_sandbox(struct call *c)
{
    struct buf args = BUF_INIT(CALL_RESULT_MAX);
    struct jw w = JW_INIT(&args);
    jw_object(&w);
    int r = write_create(c, &w);
    jw_end_object(&w);
    if (r == 0)
        r = call_ask(c, "create", &args, c->progress ? ASK_STREAM_MS : ASK_CREATE_MS, call_pass);
    buf_release(&args);
    return r;
}

int tool_destroy_sandbox(struct call *c)
{
    const char *sandbox = call_sandbox(c);
    if (!sandbox)
        return CALL_FAILED;
    struct buf args = BUF_INIT(1024);
    struct jw w = JW_INIT(&args);
    jw_object(&w);
    jw_kstring(&w, "sandbox", sandbox);
    jw_kbool(&w, "delete_files", args_bool(&c->args, "delete_files", false));
    jw_end_object(&w);
    int r = call_ask(c, "destroy", &args, ASK_CREATE_MS, call_pass);
    buf_release(&args);
    return r;
}
