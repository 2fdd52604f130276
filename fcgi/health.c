#include "fcgi/health.h"

#include "common/clock.h"
#include "common/json.h"
#include "fcgi/queries.h"

#define KEEP_US   1000000
#define ANSWER_US 2000000

static bool check_database(struct app *app, struct jw *w)
{
    struct err e = ERR_INIT;
    int r = app_open(app, &e);
    if (r == 0 && db_row(&app->db, Q_PING, &e, "") == 1)
        db_done(&app->db, Q_PING);
    else
        r = -1;
    jw_key(w, "database");
    jw_object(w);
    jw_kbool(w, "ok", r == 0);
    if (r < 0)
        jw_kstring(w, "error",
                   "the database cannot be opened or read; see the log and SMCP_STATE_DB");
    jw_end_object(w);
    return r == 0;
}

static enum reply ask_runner(struct app *app, struct runner_request *q)
{
    struct err e = ERR_INIT;
    if (runner_submit(&app->runner, q, "health", "{}", 0, &e) < 0)
        return REPLY_NONE;
    int64_t until = clock_mono_us() + ANSWER_US;
    while (q->reply == REPLY_PENDING && clock_mono_us() < until) {
        struct pollfd fds[RUNNER_POLL_FDS];
        size_t n = runner_poll(&app->runner, fds);
        (void)poll(fds, n, 200);
        runner_dispatch(&app->runner);
    }
    return q->reply;
}

static void write_down(struct jw *w, const char *key, const char *error)
{
    jw_key(w, key);
    jw_object(w);
    jw_kbool(w, "ok", false);
    jw_kstring(w, "error", error);
    jw_end_object(w);
}

/* The runner's answer gives Docker's state and its own figures. */
static bool write_runner(struct jw *w, const struct json *answer)
{
    const struct json *docker = json_get(answer, "docker");
    bool ok = json_get_bool(docker, "ok", false);
    jw_key(w, "runner");
    jw_object(w);
    jw_kbool(w, "ok", true);
    jw_kint(w, "sandboxes", json_get_int(answer, "sandboxes", 0));
    jw_kint(w, "runs", json_get_int(answer, "runs", 0));
    jw_end_object(w);
    if (docker) {
        jw_key(w, "docker");
        jw_json(w, docker);
    } else {
        write_down(w, "docker", "unknown");
    }
    return ok;
}

static bool check_runner(struct app *app, struct jw *w)
{
    struct runner_request q;
    runner_request_init(&q);
    _cleanup_json_ struct json *answer = NULL;
    struct err e = ERR_INIT;
    enum reply reply = ask_runner(app, &q);
    bool ok = false;
    if (reply == REPLY_OK && json_parse(q.result.p, q.result.len, &answer, &e) == 0) {
        ok = write_runner(w, answer);
    } else {
        bool alive = runner_alive(&app->runner);
        write_down(w, "runner",
                   alive ? "the jobs-runner does not answer"
                         : "the jobs-runner is not running; run 'make up'");
        write_down(w, "docker", "not known without the jobs-runner");
    }
    runner_request_release(&app->runner, &q);
    return ok;
}

int health_check(struct app *app, const struct buf **ret_text)
{
    int64_t now = clock_mono_us();
    *ret_text = &app->health_text;
    if (app->health_us && now - app->health_us < KEEP_US)
        return app->health_status;
    struct buf parts = BUF_INIT(1 << 15);
    struct jw w = JW_INIT(&parts);
    bool ok = check_database(app, &w);
    if (ok) {
        ok = check_runner(app, &w);
    } else {
        write_down(&w, "runner", "not known without the database");
        write_down(&w, "docker", "not known without the database");
    }
    buf_clear(&app->health_text);
    buf_addf(&app->health_text, "{\"ok\":%s,\"version\":\"" SMCP_VERSION "\",%s}\n",
             ok ? "true" : "false", parts.p);
    buf_release(&parts);
    app->health_us = now;
    app->health_status = ok ? 200 : 503;
    return app->health_status;
}
