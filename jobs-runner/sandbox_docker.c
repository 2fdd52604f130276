#include "common/base.h"

#include "common/clock.h"
#include "common/fs.h"
#include "common/layout.h"
#include "common/log.h"
#include "common/text.h"
#include "common/wire.h"
#include "jobs-runner/queries.h"
#include "jobs-runner/sandbox_internal.h"

#define START_LIMIT   2
#define STOP_SECONDS  3
#define PULL_TELL_US  300000 /* each word of progress is a commit */
#define PULL_LIMIT_MS (30 * 60 * 1000)
#define LOCAL_IMAGES  "sandbox-mcp-" /* images of this name are built here, never pulled */

/* One at a time: what is under way (a look whether it is paused) does not matter any more. */
static void call(struct sandbox *sb, const char *method, const char *path, const char *body,
                 docker_done *done)
{
    struct docker_request q = {
        .method = method, .path = path, .body = body, .done = done, .arg = sb};
    docker_cancel(TAKE_PTR(sb->call));
    sb->call = docker_start(sb->r->docker, &q);
}

static void container_call(struct sandbox *sb, const char *method, const char *suffix,
                           docker_done *done)
{
    struct buf path = BUF_INIT(512);
    buf_addf(&path, "/containers/%s%s", sb->container, suffix);
    call(sb, method, path.p, NULL, done);
    buf_release(&path);
}

static void fail(struct sandbox *sb, const struct docker_reply *reply, const char *what)
{
    struct err e = ERR_INIT;
    docker_fail(&e, reply, what);
    sandbox_event(sb, EV_FAILED, &e);
}

static void fail_with(struct sandbox *sb, struct err *e)
{
    sandbox_event(sb, EV_FAILED, e);
}

/* ---- look ---- */

static void note_exit(struct sandbox *sb, const struct json *state)
{
    int64_t code = json_get_int(state, "ExitCode", 0);
    const char *oom = json_get_bool(state, "OOMKilled", false) ? ", out of memory" : "";
    if (sb->stopped_by_us)
        sandbox_set_heal(sb, HEAL_RESTARTED, "the sandbox had been stopped and was started again");
    else if (sb->boot[0] || sb->generation)
        sandbox_set_heal(sb, HEAL_RESTARTED,
                         "the container had stopped (exit code %d%s) and was started again",
                         (int)code, oom);
}

static enum sandbox_event classify(struct sandbox *sb, const struct json *state)
{
    const char *status = json_get_string(state, "Status", "");
    sb->init = (pid_t)json_get_int(state, "Pid", 0);
    if (streq(status, "paused"))
        return EV_PAUSED;
    if (streq(status, "running") && sb->init > 0)
        return EV_RUNNING;
    if (sb->starts == 0)
        note_exit(sb, state);
    return EV_EXITED;
}

static void on_inspect(void *arg, const struct docker_reply *reply)
{
    struct sandbox *sb = arg;
    sb->call = NULL;
    if (reply->status == 404) {
        sandbox_event(sb, EV_MISSING, NULL);
        return;
    }
    _cleanup_json_ struct json *j = NULL;
    struct err e = ERR_INIT;
    if (reply->status != 200)
        fail(sb, reply, "cannot look at the container");
    else if (json_parse(reply->body, reply->len, &j, &e) < 0)
        fail_with(sb, &e);
    else
        sandbox_event(sb, classify(sb, json_get(j, "State")), NULL);
}

void sandbox_look(struct sandbox *sb)
{
    sb->state = SB_LOOKING;
    if (*sb->container)
        container_call(sb, "GET", "/json", on_inspect);
    else
        sandbox_event(sb, EV_MISSING, NULL);
}

/* In state READY, beside everything else: an agent that does not answer may be paused. */
static void on_paused_check(void *arg, const struct docker_reply *reply)
{
    struct sandbox *sb = arg;
    sb->call = NULL;
    _cleanup_json_ struct json *j = NULL;
    struct err e = ERR_INIT;
    if (reply->status == 404) {
        err_set(&e, ERR_UNAVAILABLE, "the container is gone");
        sandbox_event(sb, EV_LOST, &e);
        return;
    }
    if (reply->status != 200 || json_parse(reply->body, reply->len, &j, &e) < 0)
        return;
    if (streq(json_get_string(json_get(j, "State"), "Status", ""), "paused"))
        sandbox_event(sb, EV_PAUSED, NULL);
}

void sandbox_check_paused(struct sandbox *sb)
{
    container_call(sb, "GET", "/json", on_paused_check);
}

/* ---- unpause ---- */

static void on_unpaused(void *arg, const struct docker_reply *reply)
{
    struct sandbox *sb = arg;
    sb->call = NULL;
    if (reply->status == 204 || reply->status == 500 || reply->status == 409)
        sandbox_event(sb, EV_UNPAUSED, NULL); /* not paused any more is as good */
    else
        fail(sb, reply, "cannot unpause the container");
}

void sandbox_unpause(struct sandbox *sb)
{
    sb->state = SB_UNPAUSING;
    container_call(sb, "POST", "/unpause", on_unpaused);
}

/* ---- pull ---- */

static void image_missing(struct sandbox *sb, const char *why, struct err *e)
{
    err_set(e, ERR_NOTFOUND, "the image %s %s", sb->spec.image, why);
    const char *local = sb->spec.image + sizeof LOCAL_IMAGES - 1;
    if (strncmp(sb->spec.image, LOCAL_IMAGES, sizeof LOCAL_IMAGES - 1) == 0)
        err_fix(e, "image_missing",
                "the owner builds it on the server with: images/build.sh %s; or choose another "
                "image",
                strncmp(local, "mini", 4) == 0 ? "mini" : "base");
    else
        err_fix(e, "image_missing", "check the name, or leave image out to get the default %s",
                sb->r->cfg->base_image);
}

static void on_pull_line(void *arg, const char *line, size_t n)
{
    struct sandbox *sb = arg;
    _cleanup_json_ struct json *j = NULL;
    struct err e = ERR_INIT;
    if (json_parse(line, n, &j, &e) < 0)
        return;
    const char *error = json_get_string(j, "error", NULL);
    struct buf text = BUF_INIT(2048);
    if (error) {
        buf_adds(&text, "cannot be pulled: ");
        text_excerpt(&text, error, strlen(error), 200);
        (void)snprintf(sb->progress, sizeof sb->progress, "%s", text.p);
    } else if (clock_mono_us() - sb->told_us >= PULL_TELL_US) {
        sb->told_us = clock_mono_us();
        buf_addf(&text, "pulling %s: %s %s", sb->spec.image, json_get_string(j, "status", ""),
                 json_get_string(j, "progress", ""));
        sandbox_tell_progress(sb, text.p);
    }
    buf_release(&text);
}

static void on_pulled(void *arg, const struct docker_reply *reply)
{
    struct sandbox *sb = arg;
    struct err e = ERR_INIT;
    sb->call = NULL;
    sb->pulled = true;
    if (reply->status == 200 && strncmp(sb->progress, "cannot be pulled", 16) != 0) {
        sandbox_event(sb, EV_PULLED, NULL);
        return;
    }
    if (reply->status == 200) {
        image_missing(sb, sb->progress, &e);
    } else {
        docker_fail(&e, reply, "cannot be pulled");
        struct err docker = e;
        image_missing(sb, docker.msg, &e);
    }
    sb->progress[0] = '\0';
    fail_with(sb, &e);
}

void sandbox_pull(struct sandbox *sb)
{
    struct err e = ERR_INIT;
    sb->state = SB_PULLING;
    if (sb->pulled || strncmp(sb->spec.image, LOCAL_IMAGES, sizeof LOCAL_IMAGES - 1) == 0) {
        image_missing(sb, "does not exist on this server", &e);
        fail_with(sb, &e);
        return;
    }
    struct buf path = BUF_INIT(2048);
    buf_adds(&path, "/images/create?fromImage=");
    docker_escape(&path, sb->spec.image);
    const char *slash = strrchr(sb->spec.image, '/');
    if (!strpbrk(slash ? slash : sb->spec.image, ":@"))
        buf_adds(&path, "&tag=latest");
    struct docker_request q = {.method = "POST",
                               .path = path.p,
                               .timeout_ms = PULL_LIMIT_MS,
                               .done = on_pulled,
                               .on_line = on_pull_line,
                               .arg = sb};
    sandbox_tell_progress(sb, "pulling the image");
    sb->call = docker_start(sb->r->docker, &q);
    buf_release(&path);
}

/* ---- create ---- */

static int record_container(struct sandbox *sb, const char *id, struct err *e)
{
    (void)snprintf(sb->container, sizeof sb->container, "%s", id);
    sb->generation++;
    return db_run(&sb->r->db, Q_SANDBOX_CONTAINER, e, "titt", sb->container, sb->generation,
                  "creating", sb->name);
}

static void on_created(void *arg, const struct docker_reply *reply)
{
    struct sandbox *sb = arg;
    sb->call = NULL;
    if (reply->status == 404) {
        sandbox_event(sb, EV_IMAGE_MISSING, NULL);
        return;
    }
    if (reply->status == 409 && sb->name_tries < 2) {
        sb->name_tries++; /* the name belongs to something else: take a longer one */
        sandbox_create(sb);
        return;
    }
    _cleanup_json_ struct json *j = NULL;
    struct err e = ERR_INIT;
    const char *id = NULL;
    if (reply->status != 201) {
        fail(sb, reply, "cannot create the container");
        return;
    }
    if (json_parse(reply->body, reply->len, &j, &e) == 0)
        id = json_get_string(j, "Id", NULL);
    if (!id)
        err_set(&e, ERR_UNAVAILABLE, "Docker's answer to create has no Id");
    if (!id || record_container(sb, id, &e) < 0)
        fail_with(sb, &e);
    else
        sandbox_event(sb, EV_CREATED, NULL);
}

static int prepare_dirs(struct sandbox *sb, struct err *e)
{
    struct buf path = BUF_INIT(PATH_MAX);
    layout_workspace(sb->r->cfg, sb->name, &path);
    int r = fs_mkdirs(path.p, 0755, e);
    buf_clear(&path);
    layout_socket_dir(sb->r->cfg, sb->name, &path);
    if (r == 0)
        r = fs_mkdirs(path.p, 0700, e);
    buf_release(&path);
    if (r == 0 && access(sb->r->agent, X_OK) < 0) {
        err_sys(e, "the agent %s cannot be run", sb->r->agent);
        r = err_fix(e, "config", "the owner builds it ('make') or corrects SMCP_AGENT");
    }
    return r;
}

void sandbox_create(struct sandbox *sb)
{
    struct err e = ERR_INIT;
    sb->state = SB_CREATING;
    if (prepare_dirs(sb, &e) < 0) {
        fail_with(sb, &e);
        return;
    }
    struct buf path = BUF_INIT(512), name = BUF_INIT(256), body = BUF_INIT(1 << 16);
    container_name(sb, &name);
    buf_adds(&path, "/containers/create?name=");
    docker_escape(&path, name.p);
    container_body(sb, &body);
    call(sb, "POST", path.p, body.p, on_created);
    buf_release(&path);
    buf_release(&name);
    buf_release(&body);
}

/* ---- start, stop, remove ---- */

static void on_started(void *arg, const struct docker_reply *reply)
{
    struct sandbox *sb = arg;
    sb->call = NULL;
    static const char missing[] = "No such container"; /* 404 says also that a network is missing */
    if (reply->status == 204 || reply->status == 304)
        sandbox_event(sb, EV_STARTED, NULL);
    else if (reply->status == 404 && memmem(reply->body, reply->len, missing, sizeof missing - 1))
        sandbox_event(sb, EV_MISSING, NULL);
    else
        fail(sb, reply, "cannot start the container");
}

/* A socket that an earlier life of the agent left would be taken for the new one. */
static void drop_old_socket(struct sandbox *sb)
{
    struct buf path = BUF_INIT(PATH_MAX);
    layout_socket_dir(sb->r->cfg, sb->name, &path);
    _cleanup_close_ int dir = open(path.p, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    buf_release(&path);
    if (dir >= 0)
        (void)unlinkat(dir, WIRE_SOCKET, 0);
}

void sandbox_start(struct sandbox *sb)
{
    struct err e = ERR_INIT;
    sb->state = SB_STARTING;
    if (sb->starts++ >= START_LIMIT) {
        err_set(&e, ERR_UNAVAILABLE, "the container of %s exits as soon as it is started",
                sb->name);
        err_fix(&e, "container_exits",
                "create the sandbox anew with another image "
                "(destroy_sandbox, then create_sandbox)");
        fail_with(sb, &e);
        return;
    }
    drop_old_socket(sb);
    if (prepare_dirs(sb, &e) < 0)
        fail_with(sb, &e);
    else
        container_call(sb, "POST", "/start", on_started);
}

static void on_stopped(void *arg, const struct docker_reply *reply)
{
    struct sandbox *sb = arg;
    sb->call = NULL;
    if (reply->status == 204 || reply->status == 304 || reply->status == 404)
        sandbox_event(sb, EV_STOPPED, NULL);
    else
        fail(sb, reply, "cannot stop the container");
}

void sandbox_halt(struct sandbox *sb)
{
    struct err e = ERR_INIT;
    if (sandbox_store_state(sb, "stopped", &e) < 0) {
        log_err(LOG_LEVEL_WARN, sb->name, &e);
        return;
    }
    sandbox_disconnect(sb);
    sb->state = SB_STOPPING;
    sb->stopped_by_us = true;
    char suffix[32];
    (void)snprintf(suffix, sizeof suffix, "/stop?t=%d", STOP_SECONDS);
    container_call(sb, "POST", suffix, on_stopped);
}

static void on_removed(void *arg, const struct docker_reply *reply)
{
    struct sandbox *sb = arg;
    sb->call = NULL;
    if (reply->status == 204 || reply->status == 404)
        sandbox_event(sb, EV_REMOVED, NULL);
    else if (reply->status == 409) /* somebody else is removing it: that is what we want */
        container_call(sb, "POST", "/wait?condition=removed", on_removed);
    else if (reply->status == 200)
        sandbox_event(sb, EV_REMOVED, NULL);
    else
        fail(sb, reply, "cannot remove the container");
}

void sandbox_remove(struct sandbox *sb)
{
    docker_cancel(TAKE_PTR(sb->call));
    sandbox_disconnect(sb);
    sb->state = SB_REMOVING;
    sb->removing = true;
    if (*sb->container)
        container_call(sb, "DELETE", "?force=1&v=1", on_removed);
    else
        sandbox_event(sb, EV_REMOVED, NULL);
}

/* ---- what Docker has and we do not, and the reverse ---- */

static void on_orphan_removed(void *arg, const struct docker_reply *reply)
{
    (void)arg;
    (void)reply;
}

static void remove_orphan(struct runner *r, const char *id, const char *name)
{
    struct buf path = BUF_INIT(256);
    buf_addf(&path, "/containers/%s?force=1&v=1", id);
    struct docker_request q = {
        .method = "DELETE", .path = path.p, .done = on_orphan_removed, .arg = r};
    log_info("removing the container %.12s of sandbox %s, which is not ours any more", id, name);
    (void)docker_start(r->docker, &q);
    buf_release(&path);
}

/* A container whose creation we did not live to record belongs to its sandbox all the same. */
static void reconcile_one(struct runner *r, const struct json *c)
{
    const char *id = json_get_string(c, "Id", "");
    const char *name = json_get_string(json_get(c, "Labels"), "io.sandbox_mcp.name", "");
    struct sandbox *sb = sandbox_find(r, name);
    struct err e = ERR_INIT;
    if (sb && streq(sb->container, id))
        return;
    if (sb && !*sb->container && sb->state == SB_UNKNOWN) {
        if (record_container(sb, id, &e) < 0)
            log_err(LOG_LEVEL_WARN, name, &e);
        return;
    }
    if (!sb || (sb->state != SB_CREATING && sb->state != SB_STARTING))
        remove_orphan(r, id, name);
}

static void take_up_work(struct runner *r)
{
    for (struct sandbox *sb = r->sandboxes, *next; sb; sb = next) {
        next = sb->next;
        if (sb->state != SB_UNKNOWN)
            continue;
        if (sb->removing)
            sandbox_destroy(sb, false, NULL);
        else if (!sb->stopped_by_us && *sb->container)
            sandbox_look(sb);
        else
            sandbox_event(sb, EV_WORK, NULL);
    }
}

static void on_list(void *arg, const struct docker_reply *reply)
{
    struct runner *r = arg;
    _cleanup_json_ struct json *j = NULL;
    struct err e = ERR_INIT;
    if (reply->status != 200)
        docker_fail(&e, reply, "cannot list containers");
    else if (json_parse(reply->body, reply->len, &j, &e) == 0 && json_type(j) == JSON_ARRAY)
        for (const struct json *c = json_first(j); c; c = json_next(c))
            reconcile_one(r, c);
    if (e.kind)
        log_err(LOG_LEVEL_WARN, "reconcile", &e);
    take_up_work(r);
}

void containers_reconcile(struct runner *r)
{
    struct buf filter = BUF_INIT(256), path = BUF_INIT(1024);
    buf_addf(&filter, "{\"label\":[\"io.sandbox_mcp.instance=%s\"]}", r->instance);
    buf_adds(&path, "/containers/json?all=1&filters=");
    docker_escape(&path, filter.p);
    struct docker_request q = {.method = "GET", .path = path.p, .done = on_list, .arg = r};
    (void)docker_start(r->docker, &q);
    buf_release(&filter);
    buf_release(&path);
}
