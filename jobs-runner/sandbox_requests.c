#include "common/base.h"

#include "common/text.h"
#include "jobs-runner/docker.h"
#include "jobs-runner/housekeeper.h"
#include "jobs-runner/sandbox.h"
#include "jobs-runner/sandbox_requests.h"

static int read_name(struct request *q, const char **ret, struct err *e)
{
    *ret = json_get_string(q->args, "sandbox", "default");
    if (text_sandbox_name(*ret))
        return 0;
    err_set(e, ERR_INVALID, "sandbox: '%.80s' is not a valid name", *ret);
    return err_fix(e, "invalid_argument",
                   "use 1 to 63 letters, digits, '_', '.' or '-', the first "
                   "a letter or digit");
}

/* One text of the spec, when the caller gives it. */
static int read_text(const struct json *args, const char *key, char *into, size_t room,
                     struct err *e)
{
    const char *v = json_get_string(args, key, NULL);
    if (!v)
        return 0;
    if (!*v || strlen(v) >= room || strpbrk(v, " \t\r\n")) {
        err_set(e, ERR_INVALID, "%s: '%.80s' is not accepted", key, v);
        return err_fix(e, "invalid_argument", "pass a name without blanks, shorter than %zu bytes",
                       room);
    }
    (void)snprintf(into, room, "%s", v);
    return 0;
}

#define MEMORY_MINIMUM (6 << 20) /* Docker refuses less */

static int read_limits(const struct json *args, struct sandbox_spec *spec, struct err *e)
{
    const struct json *cpus = json_get(args, "cpus");
    if (cpus && json_type(cpus) == JSON_NUMBER)
        spec->cpus = json_number(cpus);
    spec->memory = json_get_int(args, "memory", spec->memory);
    spec->ttl_seconds = json_get_int(args, "ttl_seconds", 0);
    if (spec->cpus < 0.01 || spec->cpus > 1024) {
        err_set(e, ERR_INVALID, "cpus: %g is not accepted", spec->cpus);
        return err_fix(e, "invalid_argument", "pass a number of cores from 0.01 to 1024");
    }
    if (spec->memory < MEMORY_MINIMUM) {
        err_set(e, ERR_INVALID, "memory: %" PRId64 " bytes is not accepted", spec->memory);
        return err_fix(e, "invalid_argument", "pass at least 6m, e.g. 512m or 2g");
    }
    return 0;
}

static int read_spec(struct request *q, struct sandbox_spec *spec, struct err *e)
{
    sandbox_spec_default(q->r, spec);
    const struct json *env = json_get(q->args, "env");
    if (env && json_type(env) == JSON_OBJECT) {
        struct buf text = BUF_INIT(1 << 20);
        json_print(env, &text);
        free(spec->env);
        spec->env = buf_take(&text);
    }
    if (read_text(q->args, "image", spec->image, sizeof spec->image, e) < 0 ||
        read_text(q->args, "network", spec->network, sizeof spec->network, e) < 0 ||
        read_text(q->args, "runtime", spec->runtime, sizeof spec->runtime, e) < 0)
        return -1;
    return read_limits(q->args, spec, e);
}

struct create_plan {
    char name[64];
    bool created;
};

int create_prepare(struct request *q, struct err *e)
{
    const char *name;
    if (read_name(q, &name, e) < 0)
        return -1;
    struct sandbox *sb = sandbox_find(q->r, name);
    struct sandbox_spec spec = {.env = NULL};
    if (sb && sb->removing) {
        err_set(e, ERR_CONFLICT, "the sandbox %s is being destroyed", name);
        return err_fix(e, "conflict", "call again in a moment");
    }
    int r = sb ? 0 : read_spec(q, &spec, e);
    if (!sb && r == 0)
        r = sandbox_new(q->r, name, &spec, &sb, e);
    bool created = spec.env != NULL;
    free(spec.env);
    if (r < 0)
        return -1;
    struct create_plan *plan = xcalloc(1, sizeof *plan);
    (void)snprintf(plan->name, sizeof plan->name, "%s", name);
    plan->created = created;
    q->state = plan;
    return 0;
}

static void on_created(void *arg, struct sandbox *sb, const struct sandbox_ready *how,
                       const struct err *e)
{
    struct request *q = arg;
    if (e) {
        request_fail(q, e);
        return;
    }
    struct buf out = BUF_INIT(4096);
    struct jw w = JW_INIT(&out);
    jw_object(&w);
    jw_kstring(&w, "name", sb->name);
    jw_kstring(&w, "status", sandbox_state_name(sb));
    jw_kbool(&w, "created", how->created);
    jw_kstring(&w, "image", sb->spec.image);
    jw_kreal(&w, "cpus", sb->spec.cpus);
    jw_kint(&w, "memory", sb->spec.memory);
    jw_kstring(&w, "network", sb->spec.network);
    if (!how->created)
        jw_kstring(&w, "note",
                   "The sandbox existed already; its image and limits are unchanged "
                   "(destroy_sandbox first to change them).");
    jw_end_object(&w);
    request_answer(q, &out);
}

void create_start(struct request *q)
{
    _cleanup_free_ struct create_plan *plan = TAKE_PTR(q->state);
    struct sandbox *sb = plan ? sandbox_find(q->r, plan->name) : NULL;
    if (sb) {
        sandbox_touch(sb);
        (void)sandbox_need(sb, plan->created, q, on_created, q);
        return;
    }
    struct err e = ERR_INIT;
    err_set(&e, ERR_CONFLICT, "the sandbox was destroyed at the same time");
    request_fail(q, &e);
}

static void answer_no_sandbox(struct request *q, const char *name, bool delete_files)
{
    struct err e = ERR_INIT;
    int moved = delete_files ? housekeeper_discard(q->r, name, &e) : 1;
    if (moved < 0) {
        request_fail(q, &e);
        return;
    }
    struct buf out = BUF_INIT(512);
    struct jw w = JW_INIT(&out);
    jw_object(&w);
    jw_kstring(&w, "name", name);
    jw_kbool(&w, "destroyed", false);
    jw_kbool(&w, "files_deleted", moved == 0);
    jw_kstring(&w, "note", "There is no sandbox of this name.");
    jw_end_object(&w);
    request_answer(q, &out);
}

void destroy_start(struct request *q)
{
    const char *name;
    struct err e = ERR_INIT;
    bool delete_files = json_get_bool(q->args, "delete_files", false);
    if (read_name(q, &name, &e) < 0) {
        request_fail(q, &e);
        return;
    }
    struct sandbox *sb = sandbox_find(q->r, name);
    if (sb)
        sandbox_destroy(sb, delete_files, q);
    else
        answer_no_sandbox(q, name, delete_files);
}

static void on_pinged(void *arg, const struct docker_reply *reply)
{
    struct request *q = arg;
    struct buf out = BUF_INIT(4096);
    struct jw w = JW_INIT(&out);
    struct err e = ERR_INIT;
    bool ok = reply->status == 200;
    jw_object(&w);
    jw_key(&w, "docker");
    jw_object(&w);
    jw_kbool(&w, "ok", ok);
    jw_kstring(&w, "api", ok ? docker_version(q->r->docker) : NULL);
    if (!ok) {
        docker_fail(&e, reply, "ping");
        struct buf why = BUF_INIT(2048);
        text_excerpt(&why, e.msg, strlen(e.msg), 300);
        jw_kstring(&w, "error", why.p);
        buf_release(&why);
    }
    jw_end_object(&w);
    jw_kint(&w, "sandboxes", (int64_t)q->r->sandbox_count);
    jw_kint(&w, "runs", (int64_t)q->r->run_count);
    jw_kstring(&w, "version", SMCP_VERSION);
    jw_end_object(&w);
    request_answer(q, &out);
}

void health_start(struct request *q)
{
    struct docker_request ping = {
        .method = "GET", .path = "/_ping", .timeout_ms = 1500, .done = on_pinged, .arg = q};
    (void)docker_start(q->r->docker, &ping);
}
