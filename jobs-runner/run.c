#include "common/base.h"

#include "jobs-runner/run.h"

#include "common/clock.h"
#include "common/log.h"
#include "jobs-runner/outbox.h"
#include "jobs-runner/queries.h"
#include "jobs-runner/run_internal.h"

#include <search.h>

#define COMMAND_KEPT 16384 /* bytes of a command in the history */

static int by_id(const void *a, const void *b)
{
    return strcmp(a, b);
}

struct run *run_find(struct runner *r, const char *id)
{
    struct run **found = tfind(id, &r->run_index, by_id);
    return found ? *found : NULL;
}

bool runs_live_in(struct runner *r, const char *sandbox)
{
    return runs_count_in(r, sandbox) > 0;
}

size_t runs_count_in(struct runner *r, const char *sandbox)
{
    size_t n = 0;
    for (const struct run *run = r->runs; run; run = run->next)
        n += streq(run->sandbox, sandbox);
    return n;
}

static struct run *add(struct runner *r, const char *id, const char *sandbox)
{
    struct run *run = xcalloc(1, sizeof *run);
    (void)snprintf(run->id, sizeof run->id, "%s", id);
    (void)snprintf(run->sandbox, sizeof run->sandbox, "%s", sandbox);
    run->r = r;
    run->exit_code = -1;
    run->log.fd = -1;
    run->started_us = clock_mono_us();
    buf_init(&run->pending, 2 * RUN_PENDING_MAX + WIRE_MAX_PAYLOAD);
    capture_init(&run->out, (size_t)r->cfg->max_output);
    capture_init(&run->err, (size_t)r->cfg->max_output);
    run->next = r->runs;
    if (run->next)
        run->next->prev = run;
    r->runs = run;
    r->run_count++;
    check(tsearch(run, &r->run_index, by_id));
    return run;
}

static void waiter_free(struct run_waiter *w)
{
    timer_off(&w->timer);
    timer_off(&w->ticker);
    free(w);
}

static void drop(struct run *run)
{
    struct runner *r = run->r;
    (void)tdelete(run, &r->run_index, by_id);
    if (run->prev)
        run->prev->next = run->next;
    else
        r->runs = run->next;
    if (run->next)
        run->next->prev = run->prev;
    r->run_count--;
    while (run->waiters) {
        struct run_waiter *w = run->waiters;
        run->waiters = w->next;
        waiter_free(w);
    }
    (void)json_free(run->args);
    free(run->command);
    capture_release(&run->out);
    capture_release(&run->err);
    buf_release(&run->pending);
    runlog_close(&run->log);
    free(run);
}

struct sandbox *run_sandbox(struct run *run)
{
    return sandbox_find(run->r, run->sandbox);
}

/* ---- beginning ---- */

char *run_kept_command(const struct json *args)
{
    const char *command = json_get_string(args, "command", "");
    size_t kept = text_utf8_trim(command, MIN(strlen(command), (size_t)COMMAND_KEPT));
    return xstrndup(command, kept);
}

/* The run takes over the request's arguments. */
static struct run *from_request(struct request *q, const char *sandbox, int64_t generation)
{
    struct run *run = add(q->r, q->run_id, sandbox);
    run->command = run_kept_command(q->args);
    memcpy(run->boot, q->boot, sizeof run->boot);
    run->generation = generation;
    run->request = q->id;
    run->keep_result = json_get(q->args, "run_id") != NULL;
    run->started_at = clock_real_ms();
    run->timeout_ms = json_get_int(q->args, "timeout_ms", 0);
    run->args = TAKE_PTR(q->args);
    return run;
}

static int record(struct run *run, struct err *e)
{
    const struct json *a = run->args;
    if (db_run(&run->r->db, Q_RUN_INSERT, e, "ttititttii", run->id, run->sandbox, run->generation,
               *run->boot ? run->boot : NULL, (int64_t)run->job, json_get_string(a, "name", NULL),
               json_get_string(a, "run_id", NULL), run->command, run->started_at,
               run->timeout_ms) < 0)
        return -1;
    run->recorded = true;
    return 0;
}

static void load_log(struct run *run);

int runs_room(const struct runner *r, struct err *e)
{
    if (r->run_count < RUN_MAX_LIVE)
        return 0;
    err_set(e, ERR_LIMIT, "%zu commands are running, which is the limit", r->run_count);
    return err_fix(e, "busy", "wait for some to end, or end them with stop_job");
}

int run_new(struct request *q, struct sandbox *sb, bool job, struct run **ret, struct err *e)
{
    ulid_new(q->run_id);
    if (sb->state == SB_READY)
        memcpy(q->boot, sb->boot, sizeof q->boot);
    struct run *run = from_request(q, sb->name, sb->generation);
    run->job = job;
    if ((job || run->keep_result) && record(run, e) < 0) {
        q->run_id[0] = '\0';
        q->args = TAKE_PTR(run->args);
        drop(run);
        return -1;
    }
    *ret = run;
    return 0;
}

struct run *run_restore(struct request *q)
{
    const char *name = json_get_string(q->args, "sandbox", "default");
    const struct sandbox *sb = sandbox_find(q->r, name);
    struct run *run = from_request(q, name, sb ? sb->generation : 0);
    run->state = *run->boot ? RUN_SENT : RUN_QUEUED;
    run->started_at = q->created_at;
    load_log(run);
    return run;
}

void run_discard(struct run *run)
{
    drop(run);
}

static int record_boot(struct run *run, const struct sandbox *sb, struct err *e)
{
    if (streq(run->boot, sb->boot))
        return 0;
    memcpy(run->boot, sb->boot, sizeof run->boot);
    run->generation = sb->generation;
    if (run->recorded)
        return db_run(&run->r->db, Q_RUN_BEGIN, e, "itt", sb->generation, sb->boot, run->id);
    return db_run(&run->r->db, Q_REQUEST_SET_BOOT, e, "ti", sb->boot, run->request);
}

static void send_to(struct run *run, struct sandbox *sb)
{
    struct err e = ERR_INIT;
    if (record_boot(run, sb, &e) < 0) {
        run_fail(run, &e);
        return;
    }
    run->state = RUN_SENT;
    run->link = link_serial(sb->link);
    run->stream = link_stream_add(sb->link, 0, run_frame, run);
    if (run_send(run, sb->link, &e) == 0) {
        sandbox_sent(sb);
        return;
    }
    link_stream_drop(sb->link, run->stream);
    run->stream = 0;
    if (e.kind)
        run_fail(run, &e);
    /* else the link broke: runs_settled or runs_lost decides when that is reported */
}

static void take_heal(struct run *run, const struct sandbox_ready *how)
{
    if (how->heal == HEAL_NONE)
        return;
    run->heal = how->heal;
    (void)snprintf(run->heal_reason, sizeof run->heal_reason, "%s", how->reason);
}

static void on_ready(void *arg, struct sandbox *sb, const struct sandbox_ready *how,
                     const struct err *e)
{
    struct run *run = arg;
    run->want = NULL;
    run->created |= how->created;
    take_heal(run, how);
    if (e)
        run_fail(run, e);
    else if (run->stop_signal)
        run_end(run, "stopped");
    else
        send_to(run, sb);
}

void run_begin(struct run *run, bool created)
{
    struct sandbox *sb = run_sandbox(run);
    struct err e = ERR_INIT;
    if (!sb) { /* destroyed since the request was prepared */
        if (sandbox_new_default(run->r, run->sandbox, &sb, &e) < 0) {
            run_fail(run, &e);
            return;
        }
        created = true;
    }
    struct request *q = run->waiters ? run->waiters->q : NULL;
    if (sb->state == SB_READY && !sb->wants) {
        const struct sandbox_ready how = {.heal = sb->heal, .reason = sb->heal_reason};
        sb->heal = HEAL_NONE;
        on_ready(run, sb, &how, NULL);
        return;
    }
    char id[sizeof run->id];
    struct runner *r = run->r;
    memcpy(id, run->id, sizeof id);
    struct sandbox_want *w = sandbox_need(sb, created, q, on_ready, run);
    /* The call back may have come already, and have ended the run. */
    if (run_find(r, id) == run && run->state == RUN_QUEUED)
        run->want = w;
}

/* ---- waiting ---- */

static void unlink_waiter(struct run_waiter *w)
{
    for (struct run_waiter **p = &w->run->waiters; *p; p = &(*p)->next)
        if (*p == w) {
            *p = w->next;
            return;
        }
}

static void status_result(const struct run *run, const struct run_waiter *w, struct buf *out)
{
    struct jw jw = JW_INIT(out);
    jw_object(&jw);
    jw_kstring(&jw, "job_id", run->id);
    if (w->what == WAIT_STOP)
        jw_kbool(&jw, "stopped", run->status && streq(run->status, "stopped"));
    jw_kstring(&jw, "status", run->status ? run->status : "running");
    if (!run->status && w->what == WAIT_STOP)
        jw_kstring(&jw, "note",
                   "The signal was sent; the job still runs. get_job shows how it "
                   "goes on; signal KILL ends it for certain.");
    jw_end_object(&jw);
}

/* Give the waiter what it waits for, as things stand. */
static void answer(struct run *run, struct run_waiter *w)
{
    struct buf out = BUF_INIT(16u << 20);
    unlink_waiter(w);
    if (run->want)
        sandbox_need_quietly(run->want);
    if (w->what == WAIT_RESULT)
        run_result(run, run->status == NULL, &out);
    else if (w->what == WAIT_START)
        run_started_result(run, &out);
    else
        status_result(run, w, &out);
    request_answer(w->q, &out);
    waiter_free(w);
}

/* From now on it is known by its id alone. */
static int become_job(struct run *run, struct err *e)
{
    run->job = true;
    run_spill(run);
    if (!run->recorded)
        return record(run, e);
    return db_run(&run->r->db, Q_RUN_JOB, e, "t", run->id);
}

static int on_wait_over(sd_event_source *s, uint64_t usec, void *arg)
{
    (void)s;
    (void)usec;
    struct run_waiter *w = arg;
    struct run *run = w->run;
    struct err e = ERR_INIT;
    if (w->what == WAIT_RESULT && !run->job && become_job(run, &e) < 0)
        log_err(LOG_LEVEL_WARN, run->id, &e);
    answer(run, w);
    return 0;
}

#define TICK_US 1000000

/* The last line of the output so far, for a caller that follows the progress. */
static int on_tick(sd_event_source *s, uint64_t usec, void *arg)
{
    (void)s;
    (void)usec;
    struct run_waiter *w = arg;
    struct buf line = BUF_INIT(4 * PROGRESS_MAX);
    run_last_line(w->run, &line);
    if (w->run->state != RUN_QUEUED)
        request_progress(w->q, line.p, line.len);
    buf_release(&line);
    (void)timer_after(w->run->r, &w->ticker, TICK_US, on_tick, w);
    return 0;
}

void run_wait(struct run *run, struct request *q, enum run_wait what, int64_t wait_ms)
{
    struct run_waiter *w = xcalloc(1, sizeof *w);
    *w = (struct run_waiter){.next = run->waiters, .run = run, .q = q, .what = what};
    run->waiters = w;
    int64_t left = MAX(wait_ms - (clock_real_ms() - q->created_at), (int64_t)0);
    (void)timer_after(run->r, &w->timer, MIN(left, wait_ms) * 1000, on_wait_over, w);
    const struct json *args = run->args ? run->args : q->args;
    if (json_get_bool(args, "progress", false))
        (void)timer_after(run->r, &w->ticker, TICK_US, on_tick, w);
}

void run_answer_started(struct run *run)
{
    for (struct run_waiter *w = run->waiters, *next; w; w = next) {
        next = w->next;
        if (w->what == WAIT_START)
            answer(run, w);
    }
}

/* ---- ending ---- */

static void detach(struct run *run)
{
    struct sandbox *sb = run_sandbox(run);
    if (run->want && sb)
        sandbox_unneed(sb, TAKE_PTR(run->want));
    if (!sb)
        return;
    if (run->state == RUN_SENT)
        sandbox_heard(sb);
    sb->used_us = clock_mono_us();
    /* Whatever the agent still sends for it finds nobody. */
    if (run->stream && sb->link && link_serial(sb->link) == run->link)
        link_stream_drop(sb->link, run->stream);
}

/* What the outbox writes and tells the agent, when the run itself is gone. */
static struct outbox_run_end describe_end(struct run *run)
{
    struct outbox_run_end end = {
        .status = run->status,
        .exit_code = run->exit_code,
        .signal = run->signal,
        .oom_killed = run->oom_killed,
        .left_running = run->left_running,
        .duration_us = run->duration_us,
        .log = run->log.fd >= 0,
        .generation = run->generation,
        .started_at = run->started_at,
        .timeout_ms = run->timeout_ms,
        .link = run->link,
        .stream = run->stream,
    };
    memcpy(end.id, run->id, sizeof end.id);
    memcpy(end.sandbox, run->sandbox, sizeof end.sandbox);
    if (*run->reason)
        end.reason = xstrdup(run->reason);
    if (!run->recorded)
        end.command = TAKE_PTR(run->command);
    return end;
}

void run_end(struct run *run, const char *status)
{
    detach(run);
    run->status = status;
    if (run->job)
        run_spill(run);
    if (!run->duration_us)
        run->duration_us = clock_mono_us() - run->started_us;
    struct outbox_run_end end = describe_end(run);
    if (run->keep_result) {
        struct buf out = BUF_INIT(16u << 20);
        run_result(run, false, &out);
        end.result = buf_take(&out);
    }
    outbox_run_end(run->r->outbox, &end);
    while (run->waiters)
        answer(run, run->waiters);
    drop(run);
}

/* The caller's id of a command that never began may be used for it again. */
static void free_caller_id(struct run *run)
{
    struct err e = ERR_INIT;
    if (run->keep_result && run->recorded && run->state == RUN_QUEUED &&
        db_run(&run->r->db, Q_RUN_FREE_ID, &e, "t", run->id) < 0)
        log_err(LOG_LEVEL_WARN, run->id, &e);
}

void run_fail(struct run *run, const struct err *e)
{
    free_caller_id(run);
    (void)snprintf(run->reason, sizeof run->reason, "%.199s", e->msg);
    for (struct run_waiter *w = run->waiters, *next; w; w = next) {
        next = w->next;
        if (w->what != WAIT_RESULT && w->what != WAIT_START)
            continue;
        unlink_waiter(w);
        request_fail(w->q, e);
        waiter_free(w);
    }
    run_end(run, "lost");
}

void run_abandon(struct run *run, const char *reason)
{
    (void)snprintf(run->reason, sizeof run->reason, "%.199s", reason);
    run_end(run, "lost");
}

/* ---- the sandbox's news ---- */

/* The run that an agent says it has, if it may: one that went to this sandbox. */
static struct run *reported_run(struct sandbox *sb, const struct run_report *st)
{
    struct run *run = run_find(sb->r, st->id);
    return run && run->state != RUN_QUEUED && streq(run->sandbox, sb->name) ? run : NULL;
}

void run_found(struct sandbox *sb, const struct run_report *st)
{
    struct run *run = reported_run(sb, st);
    unsigned char offset[8];
    if (!run) {
        unsigned char kill[WIRE_FIELD(8) * 3];
        size_t n = wire_number_put(kill, WT_SIGNAL, SIGKILL);
        n += wire_number_put(kill + n, WT_TREE, 1);
        n += wire_number_put(kill + n, WT_GRACE_MS, 0);
        if (st->running)
            (void)link_send(sb->link, WIRE_SIGNAL, 0, st->stream, kill, n);
        (void)link_send(sb->link, WIRE_DONE, 0, st->stream, NULL, 0);
        return;
    }
    if (run->stream) /* it says so twice */
        return;
    run->stream = link_stream_add(sb->link, st->stream, run_frame, run);
    if (!run->stream)
        return;
    run->state = RUN_RUNNING;
    run->link = link_serial(sb->link);
    run->acked = 0;
    wire_u64_put(offset, run->seen);
    (void)link_send(sb->link, WIRE_ATTACH, 0, st->stream, offset, sizeof offset);
    if (run->stop_signal)
        run_send_stop(run, sb->link);
    run_answer_started(run);
}

void runs_tell_heal(struct sandbox *sb)
{
    const struct sandbox_ready how = {.heal = sb->heal, .reason = sb->heal_reason};
    for (struct run *run = sb->r->runs; run; run = run->next)
        if (run->state != RUN_QUEUED && streq(run->sandbox, sb->name))
            take_heal(run, &how);
}

void runs_settled(struct sandbox *sb)
{
    runs_tell_heal(sb);
    for (struct run *run = sb->r->runs, *next; run; run = next) {
        next = run->next;
        if (run->state == RUN_QUEUED || run->stream || !streq(run->sandbox, sb->name))
            continue;
        bool same_boot = streq(run->boot, sb->boot);
        if (same_boot && run->stop_signal)
            run_end(run, "stopped");
        else if (same_boot && run->args && run->state == RUN_SENT)
            send_to(run, sb); /* the agent says that it never got it */
        else
            run_abandon(run, same_boot ? "the runner stopped before the command was started"
                                       : "the container was restarted while the command ran");
    }
}

void runs_unlinked(struct sandbox *sb)
{
    for (struct run *run = sb->r->runs; run; run = run->next)
        if (streq(run->sandbox, sb->name)) {
            run->stream = 0;
            run->link = 0;
        }
}

void runs_lost(struct sandbox *sb, const char *reason)
{
    for (struct run *run = sb->r->runs, *next; run; run = next) {
        next = run->next;
        if (run->state != RUN_QUEUED && streq(run->sandbox, sb->name))
            run_abandon(run, reason);
    }
}

/* ---- after a restart of the runner ---- */

static void load_log(struct run *run)
{
    struct err e = ERR_INIT;
    struct buf path = BUF_INIT(PATH_MAX);
    layout_run_log(run->r->cfg, run->id, &path);
    bool exists = access(path.p, F_OK) == 0;
    if (exists && runlog_open_write(&run->log, path.p, run->r->cfg->job_log_max, &e) < 0)
        log_err(LOG_LEVEL_WARN, "log", &e);
    buf_release(&path);
    run->seen = run->log.fd >= 0 ? run->log.total : 0;
    run->merged = run->seen > 0;
    for (uint64_t at = 0; at < run->seen;) {
        struct buf part = BUF_INIT(1 << 20);
        ssize_t n = runlog_read(&run->log, at, 1 << 20, &part, &e);
        if (n > 0)
            capture_add(&run->out, part.p, part.len);
        buf_release(&part);
        uint64_t next = n > 0 ? at + (uint64_t)n : runlog_first_kept(&run->log, at);
        if (next == at)
            break;
        capture_skip(&run->out, next - at - (n > 0 ? (uint64_t)n : 0));
        at = next;
    }
}

static void load_row(struct runner *r)
{
    struct db *db = &r->db;
    size_t q = Q_RUN_LIVE;
    struct run *run = add(r, db_text(db, q, 0), db_text(db, q, 1));
    (void)snprintf(run->boot, sizeof run->boot, "%s", db_text(db, q, 3));
    run->state = *run->boot ? RUN_SENT : RUN_QUEUED;
    run->recorded = true;
    run->job = db_int(db, q, 4) != 0;
    run->keep_result = !db_null(db, q, 5);
    run->started_at = db_int(db, q, 6);
    run->started_us = clock_mono_us() - MAX(clock_real_ms() - run->started_at, (int64_t)0) * 1000;
    run->timeout_ms = db_int(db, q, 7);
    load_log(run);
}

int runs_load(struct runner *r, struct err *e)
{
    if (db_run(&r->db, Q_RUN_RECOVER, e, "") < 0)
        return -1;
    int n = db_row(&r->db, Q_RUN_LIVE, e, "");
    for (; n > 0; n = db_next(&r->db, Q_RUN_LIVE, e))
        load_row(r);
    return n;
}

void runs_free(struct runner *r)
{
    while (r->runs)
        drop(r->runs);
}
