#include "common/base.h"

#include "common/text.h"
#include "jobs-runner/queries.h"
#include "jobs-runner/run.h"
#include "jobs-runner/run_requests.h"

#define JOB_START_WAIT_MS 20000 /* run_background answers then, also while an image is pulled */
#define STOP_WAIT_MS      6000
#define STOP_GRACE_MS     2000
#define CANCEL_GRACE_MS   1000

static int bad_name(const char *name, struct err *e)
{
    err_set(e, ERR_INVALID, "sandbox: '%.80s' is not a valid name", name);
    return err_fix(e, "invalid_argument",
                   "use 1 to 63 letters, digits, '_', '.' or '-', the first "
                   "a letter or digit");
}

/* The sandbox that a command runs in; made when it is missing. */
static int sandbox_for(struct request *q, struct sandbox **ret, bool *ret_created, struct err *e)
{
    const char *name = json_get_string(q->args, "sandbox", "default");
    if (!text_sandbox_name(name))
        return bad_name(name, e);
    *ret_created = false;
    *ret = sandbox_find(q->r, name);
    if (*ret && !(*ret)->removing)
        return 0;
    if (*ret) {
        err_set(e, ERR_CONFLICT, "the sandbox %s is being destroyed", name);
        return err_fix(e, "conflict", "call again in a moment; a new sandbox is made then");
    }
    int r = sandbox_new_default(q->r, name, ret, e);
    *ret_created = r == 0;
    return r;
}

/* What a prepared request hands to its start. */
struct plan {
    struct run *run; /* NULL: the caller's run_id is known already */
    bool created;
};

/* A retry repeats the command: another one under the same id is a mistake that must not pass. */
static int same_command(struct request *q, const char *caller, struct err *e)
{
    _cleanup_free_ char *command = run_kept_command(q->args);
    if (streq(command, db_text(&q->r->db, Q_RUN_BY_CALLER, 1)))
        return 1;
    err_set(e, ERR_CONFLICT, "run_id: '%.64s' was used for another command in this sandbox",
            caller);
    return err_fix(e, "run_id_used",
                   "choose a new run_id for a new command; the same one only "
                   "repeats a call");
}

/* A run_id that was used before attaches to that run. 1: yes, 0: it is new. */
static int known_caller_id(struct request *q, struct err *e)
{
    struct db *db = &q->r->db;
    const char *caller = json_get_string(q->args, "run_id", NULL);
    if (!caller)
        return 0;
    int n = db_row(db, Q_RUN_BY_CALLER, e, "tt", json_get_string(q->args, "sandbox", "default"),
                   caller);
    if (n > 0 && (n = same_command(q, caller, e)) > 0)
        (void)snprintf(q->run_id, sizeof q->run_id, "%s", db_text(db, Q_RUN_BY_CALLER, 0));
    db_done(db, Q_RUN_BY_CALLER);
    return n;
}

static int check_command(struct request *q, struct err *e)
{
    const char *command = json_get_string(q->args, "command", "");
    if (command[strspn(command, " \t\r\n")])
        return 0;
    err_set(e, ERR_INVALID, "command is empty");
    return err_fix(e, "invalid_argument",
                   "pass the shell command to run, e.g. {\"command\":\"ls\"}");
}

static int prepare(struct request *q, bool job, struct err *e)
{
    struct sandbox *sb = NULL;
    struct plan *plan = xcalloc(1, sizeof *plan);
    q->state = plan;
    int known = check_command(q, e) < 0 ? -1 : known_caller_id(q, e);
    if (known > 0)
        return 0;
    if (known == 0 && runs_room(q->r, e) == 0 && sandbox_for(q, &sb, &plan->created, e) == 0 &&
        run_new(q, sb, job, &plan->run, e) == 0)
        return 0;
    free(plan);
    q->state = NULL;
    return -1;
}

int exec_prepare(struct request *q, struct err *e)
{
    return prepare(q, false, e);
}

int job_prepare(struct request *q, struct err *e)
{
    return prepare(q, true, e);
}

/* The stored result of a run that has ended; its status when none was stored or a job was asked
 * for. */
static void answer_ended(struct request *q, enum run_wait what)
{
    struct db *db = &q->r->db;
    struct err e = ERR_INIT;
    struct buf out = BUF_INIT(16u << 20);
    struct jw w = JW_INIT(&out);
    int n = db_row(db, Q_RUN_RESULT, &e, "t", q->run_id);
    if (n > 0 && what == WAIT_RESULT && !db_null(db, Q_RUN_RESULT, 3)) {
        buf_add(&out, db_text(db, Q_RUN_RESULT, 3), db_text_len(db, Q_RUN_RESULT, 3));
    } else if (n > 0) {
        jw_object(&w);
        jw_kstring(&w, "job_id", q->run_id);
        jw_kstring(&w, "sandbox", db_text(db, Q_RUN_RESULT, 0));
        jw_kstring(&w, "status", db_text(db, Q_RUN_RESULT, 1));
        if (what == WAIT_RESULT) {
            jw_kstring(&w, "stdout", "");
            jw_kstring(&w, "stderr", "");
        }
        jw_kstring(&w, "note", "This command has ended already; get_job shows its output.");
        jw_end_object(&w);
    } else if (n == 0) {
        err_set(&e, ERR_NOTFOUND, "the run %s is not known any more", q->run_id);
    }
    db_done(db, Q_RUN_RESULT);
    if (n > 0)
        request_answer(q, &out);
    else
        request_fail(q, &e);
    buf_release(&out);
}

static bool has_row(struct request *q)
{
    struct err e = ERR_INIT;
    int n = db_row(&q->r->db, Q_RUN_BY_ID, &e, "t", q->run_id);
    db_done(&q->r->db, Q_RUN_BY_ID);
    return n != 0;
}

/* Take up the run that is recorded for this request, whoever started it. */
static void attach(struct request *q, enum run_wait what, int64_t wait_ms)
{
    struct run *run = run_find(q->r, q->run_id);
    if (!run && q->resumed && !has_row(q))
        run = run_restore(q);
    if (!run) {
        answer_ended(q, what);
        return;
    }
    bool begin = q->resumed && run->state == RUN_QUEUED && !run->want;
    if (q->resumed && !run->args && run->state != RUN_RUNNING)
        run->args = TAKE_PTR(q->args);
    run_wait(run, q, what, wait_ms);
    if (begin && run->args)
        run_begin(run, false);
}

static void start(struct request *q, enum run_wait what, int64_t wait_ms)
{
    _cleanup_free_ struct plan *plan = TAKE_PTR(q->state);
    if (!plan || !plan->run) {
        attach(q, what, wait_ms);
        return;
    }
    run_wait(plan->run, q, what, wait_ms);
    run_begin(plan->run, plan->created);
}

static int64_t wait_of(const struct request *q)
{
    const struct run *run = run_find(q->r, q->run_id);
    const struct json *args = q->args ? q->args : run ? run->args : NULL;
    return json_get_int(args, "wait_ms", q->r->cfg->exec_wait * 1000);
}

void exec_start(struct request *q)
{
    start(q, WAIT_RESULT, wait_of(q));
}

void job_start(struct request *q)
{
    start(q, WAIT_START, JOB_START_WAIT_MS);
}

/* What an ended run left behind in its sandbox is ended too: the agent finds it by the run's id. */
static bool end_leftovers(struct runner *r, const char *id, const char *sandbox, int64_t left)
{
    struct sandbox *sb = left > 0 ? sandbox_find(r, sandbox) : NULL;
    if (!sb || sb->state != SB_READY)
        return false;
    unsigned char b[WIRE_FIELD(8) * 3 + WIRE_FIELD(WIRE_RUN_ID_MAX)];
    size_t n = wire_number_put(b, WT_SIGNAL, SIGTERM);
    n += wire_number_put(b + n, WT_TREE, 1);
    n += wire_number_put(b + n, WT_GRACE_MS, STOP_GRACE_MS);
    n += wire_field_put(b + n, WT_RUN_ID, id, (uint32_t)strlen(id));
    return link_send(sb->link, WIRE_SIGNAL, 0, 0, b, n) == 0;
}

/* The row of an ended run is current: answer from it. */
static void answer_stopped(struct request *q, const char *id, bool stop)
{
    struct db *db = &q->r->db;
    struct buf out = BUF_INIT(1024);
    struct jw w = JW_INIT(&out);
    jw_object(&w);
    jw_kstring(&w, "job_id", id);
    if (stop)
        jw_kbool(&w, "stopped", false);
    jw_kstring(&w, "status", db_text(db, Q_RUN_BY_ID, 1));
    if (stop && end_leftovers(q->r, id, db_text(db, Q_RUN_BY_ID, 0), db_int(db, Q_RUN_BY_ID, 2)))
        jw_kstring(&w, "note",
                   "The job had ended before; processes that it left running are being "
                   "ended now.");
    else if (stop)
        jw_kstring(&w, "note", "The job had ended before.");
    jw_end_object(&w);
    db_done(db, Q_RUN_BY_ID);
    request_answer(q, &out);
}

/* The live run that job_id names, or NULL after the request was answered. */
static struct run *live_run(struct request *q, bool stop)
{
    const char *id = json_get_string(q->args, "job_id", "");
    struct run *run = run_find(q->r, id);
    if (run)
        return run;
    struct err e = ERR_INIT;
    int n = db_row(&q->r->db, Q_RUN_BY_ID, &e, "t", id);
    if (n > 0) {
        answer_stopped(q, id, stop);
        return NULL;
    }
    if (n == 0)
        (void)job_missing(id, q->r->cfg, &e);
    request_fail(q, &e);
    return NULL;
}

void wait_start(struct request *q)
{
    struct run *run = live_run(q, false);
    if (run)
        run_wait(run, q, WAIT_STATUS, json_get_int(q->args, "wait_ms", 0));
}

static const struct {
    const char *name;
    int sig;
    bool tree;
    int64_t grace_ms;
} signals[] = {
    {"TERM", SIGTERM, true, STOP_GRACE_MS},
    {"KILL", SIGKILL, true, 0},
    {"INT", SIGINT, false, 0},
    {"HUP", SIGHUP, false, 0},
    {"QUIT", SIGQUIT, false, 0},
    {"USR1", SIGUSR1, false, 0},
    {"USR2", SIGUSR2, false, 0},
    {"STOP", SIGSTOP, false, 0},
    {"CONT", SIGCONT, false, 0},
};

void stop_start(struct request *q)
{
    const char *name = json_get_string(q->args, "signal", "TERM");
    if (strncmp(name, "SIG", 3) == 0)
        name += 3;
    for (size_t i = 0; i < ARRAY_LEN(signals); i++) {
        if (!streq(signals[i].name, name))
            continue;
        struct run *run = live_run(q, true);
        if (!run)
            return;
        run_wait(run, q, WAIT_STOP, signals[i].tree ? STOP_WAIT_MS : 0);
        run_signal(run, signals[i].sig, signals[i].tree, signals[i].grace_ms, NULL);
        return;
    }
    struct err e = ERR_INIT;
    err_set(&e, ERR_INVALID, "signal: '%.20s' is not accepted", name);
    err_fix(&e, "invalid_argument", "use TERM, KILL, INT, HUP, QUIT, USR1, USR2, STOP or CONT");
    request_fail(q, &e);
}

/* Nobody else waits: a caller that came back with the same run_id does. */
static bool alone(const struct run *run)
{
    return !run->waiters->next;
}

/* The caller of an exec went away: its command ends, unless it has become a job. */
static bool cancel_run_of(struct runner *r, int64_t request)
{
    for (struct run *run = r->runs; run; run = run->next)
        for (struct run_waiter *w = run->waiters; w; w = w->next)
            if (w->what == WAIT_RESULT && w->q->id == request && !run->job && alone(run)) {
                run_signal(run, SIGTERM, true, CANCEL_GRACE_MS, "canceled by the caller");
                return true;
            }
    return false;
}

void cancel_start(struct request *q)
{
    struct buf out = BUF_INIT(64);
    bool done = cancel_run_of(q->r, json_get_int(q->args, "request", 0));
    buf_adds(&out, done ? "{\"canceled\":true}" : "{\"canceled\":false}");
    request_answer(q, &out);
}
