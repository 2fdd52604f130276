#include "common/base.h"

#include "jobs-runner/requests.h"

#include "common/clock.h"
#include "common/fs.h"
#include "common/layout.h"
#include "common/log.h"
#include "common/text.h"
#include "common/wire.h"
#include "jobs-runner/file_requests.h"
#include "jobs-runner/housekeeper.h"
#include "jobs-runner/outbox.h"
#include "jobs-runner/queries.h"
#include "jobs-runner/run.h"
#include "jobs-runner/run_requests.h"
#include "jobs-runner/sandbox_requests.h"

#include <sys/epoll.h>

enum after_crash {
    AGAIN,  /* may be done twice */
    ATTACH, /* its run is recorded: take that up */
    REFUSE  /* must not be done twice, and nobody knows whether it was */
};

struct request_kind {
    const char *name;
    int (*prepare)(struct request *q, struct err *e); /* in the transaction, or NULL */
    void (*start)(struct request *q);                 /* after the commit */
    enum after_crash after_crash;
};

// clang-format off
static const struct request_kind kinds[] = {
    /* kind        prepare         start             after a crash */
    {"exec",       exec_prepare,   exec_start,       ATTACH},
    {"run",        job_prepare,    job_start,        ATTACH},
    {"wait",       NULL,           wait_start,       AGAIN},
    {"stop",       NULL,           stop_start,       AGAIN},
    {"create",     create_prepare, create_start,     AGAIN},
    {"destroy",    NULL,           destroy_start,    AGAIN},
    {"file_read",  NULL,           file_read_start,  AGAIN},
    {"file_write", NULL,           file_write_start, REFUSE},
    {"file_list",  NULL,           file_list_start,  AGAIN},
    {"cancel",     NULL,           cancel_start,     AGAIN},
    {"health",     NULL,           health_start,     AGAIN},
};
// clang-format on

static const struct request_kind *kind_by_name(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (streq(kinds[i].name, name))
            return &kinds[i];
    return NULL;
}

static void request_free(struct request *q)
{
    (void)json_free(q->args);
    free(q);
}

void request_answer(struct request *q, struct buf *result)
{
    if (buf_bad(result)) {
        struct err e = ERR_INIT;
        err_set(&e, ERR_LIMIT, "the result is too large");
        request_fail(q, &e);
        return;
    }
    outbox_answer(q->r->outbox, q->id, q->reply, true, buf_take(result));
    request_free(q);
}

void request_fail(struct request *q, const struct err *e)
{
    struct buf text = BUF_INIT(8192);
    json_error(&text, e);
    if (e->kind == ERR_INTERNAL)
        log_err(LOG_LEVEL_ERROR, q->kind ? q->kind->name : "request", e);
    outbox_answer(q->r->outbox, q->id, q->reply, false, buf_take(&text));
    request_free(q);
}

void request_progress(struct request *q, const char *message, size_t n)
{
    struct buf clean = BUF_INIT(8 * PROGRESS_MAX), out = BUF_INIT(16 * PROGRESS_MAX);
    struct jw w = JW_INIT(&out);
    struct err e = ERR_INIT;
    text_excerpt(&clean, message, n, PROGRESS_MAX);
    jw_object(&w);
    jw_key(&w, "message");
    jw_string_n(&w, clean.p, clean.len);
    jw_kint(&w, "elapsed_ms", clock_real_ms() - q->created_at);
    jw_end_object(&w);
    if (db_run(&q->r->db, Q_REQUEST_PROGRESS, &e, "ti", out.p, q->id) == 0)
        outbox_ring(q->r->outbox, q->reply, q->id);
    buf_release(&clean);
    buf_release(&out);
}

/* The row under the cursor of `query`. A reply name is a file name, nothing else. */
static struct request *read_row(struct runner *r, size_t query, struct err *e)
{
    struct db *db = &r->db;
    struct request *q = xcalloc(1, sizeof *q);
    q->r = r;
    q->id = db_int(db, query, 0);
    q->kind = kind_by_name(db_text(db, query, 1));
    const char *reply = db_text(db, query, 3);
    if (!strchr(reply, '/') && *reply != '.')
        (void)snprintf(q->reply, sizeof q->reply, "%s", reply);
    q->created_at = db_int(db, query, 4);
    q->deadline = db_int(db, query, 5);
    if (!q->kind)
        err_set(e, ERR_INVALID, "the runner does not know the request kind '%.40s'",
                db_text(db, query, 1));
    else if (json_parse(db_text(db, query, 2), db_text_len(db, query, 2), &q->args, e) < 0)
        err_wrap(e, "request");
    return q;
}

#define BATCH 64

struct batch {
    struct request *q[BATCH];
    struct err e[BATCH];
    size_t n;
};

static int read_batch(struct runner *r, struct batch *b, struct err *e)
{
    int64_t now = clock_real_ms();
    b->n = 0;
    int more = db_row(&r->db, Q_REQUEST_QUEUED, e, "");
    for (; more > 0 && b->n < BATCH; more = db_next(&r->db, Q_REQUEST_QUEUED, e)) {
        b->e[b->n] = (struct err)ERR_INIT;
        struct request *q = read_row(r, Q_REQUEST_QUEUED, &b->e[b->n]);
        if (!b->e[b->n].kind && q->deadline < now)
            err_set(&b->e[b->n], ERR_TIMEOUT, "the request was older than its deadline");
        b->q[b->n++] = q;
    }
    db_done(&r->db, Q_REQUEST_QUEUED);
    return more < 0 ? -1 : 0;
}

/* Record in one transaction that they are taken, and what they will start. */
static int take_batch(struct runner *r, struct batch *b, struct err *e)
{
    if (db_begin(&r->db, e) < 0)
        return -1;
    for (size_t i = 0; i < b->n; i++) {
        struct request *q = b->q[i];
        if (!b->e[i].kind && q->kind->prepare && q->kind->prepare(q, &b->e[i]) < 0)
            check(b->e[i].kind);
        if (db_run(&r->db, Q_REQUEST_TAKE, e, "tti", *q->run_id ? q->run_id : NULL,
                   *q->boot ? q->boot : NULL, q->id) < 0) {
            db_rollback(&r->db);
            return -1;
        }
    }
    return db_commit(&r->db, e);
}

/*
 * Nothing of the batch was recorded: forget what was prepared. The rows are still queued, so they
 * must not be answered here; whoever read an error would call again, and both would be done.
 */
static void undo_batch(struct runner *r, struct batch *b)
{
    for (size_t i = 0; i < b->n; i++) {
        struct request *q = b->q[i];
        struct run *run = *q->run_id ? run_find(r, q->run_id) : NULL;
        if (run && run->request == q->id) /* not the one that a known run_id leads to */
            run_discard(run);
        free(q->state);
        request_free(q);
    }
    sandboxes_forget_unrecorded(r);
}

#define TAKE_AGAIN_US 1000000

static int on_take_again(sd_event_source *s, uint64_t usec, void *arg);

static size_t take_queued(struct runner *r)
{
    static struct batch b; /* too large for the stack; one thread */
    struct err e = ERR_INIT;
    if (read_batch(r, &b, &e) < 0) {
        log_err(LOG_LEVEL_ERROR, "cannot read requests", &e);
        return 0;
    }
    if (!b.n)
        return 0;
    housekeeper_count(r->housekeeper, 2);
    if (take_batch(r, &b, &e) < 0) {
        log_err(LOG_LEVEL_ERROR, "cannot take requests, trying again", &e);
        undo_batch(r, &b);
        (void)timer_after(r, &r->take_timer, TAKE_AGAIN_US, on_take_again, r);
        return 0;
    }
    for (size_t i = 0; i < b.n; i++) {
        if (b.e[i].kind)
            request_fail(b.q[i], &b.e[i]);
        else
            b.q[i]->kind->start(b.q[i]);
    }
    outbox_spare_moment(r->outbox);
    return b.n;
}

static int on_take_again(sd_event_source *s, uint64_t usec, void *arg)
{
    (void)s;
    (void)usec;
    while (take_queued(arg) == BATCH)
        ;
    return 0;
}

static int on_bell(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    (void)s;
    (void)events;
    char drain[4096];
    while (read(fd, drain, sizeof drain) == (ssize_t)sizeof drain)
        ;
    while (take_queued(arg) == BATCH)
        ;
    return 0;
}

/* A request that a former life of the runner had taken. */
static void resume(struct request *q)
{
    struct err e = ERR_INIT;
    q->resumed = true;
    bool recorded = *q->run_id != '\0';
    if (q->kind->after_crash == REFUSE || (q->kind->after_crash == ATTACH && !recorded)) {
        err_set(&e, ERR_UNAVAILABLE, "the runner was restarted while it worked on this");
        err_fix(&e, "runner_restarted",
                "look whether it was done (list_files, list_sandboxes), "
                "then call again");
        request_fail(q, &e);
        return;
    }
    if (q->kind->after_crash == AGAIN && q->kind->prepare && q->kind->prepare(q, &e) < 0)
        request_fail(q, &e);
    else
        q->kind->start(q);
}

static int resume_taken(struct runner *r, struct err *e)
{
    struct request *list = NULL, **end = &list;
    int more = db_row(&r->db, Q_REQUEST_TAKEN, e, "");
    for (; more > 0; more = db_next(&r->db, Q_REQUEST_TAKEN, e)) {
        struct err bad = ERR_INIT;
        struct request *q = read_row(r, Q_REQUEST_TAKEN, &bad);
        (void)snprintf(q->run_id, sizeof q->run_id, "%s", db_text(&r->db, Q_REQUEST_TAKEN, 6));
        (void)snprintf(q->boot, sizeof q->boot, "%s", db_text(&r->db, Q_REQUEST_TAKEN, 7));
        if (bad.kind) {
            request_fail(q, &bad);
            continue;
        }
        *end = q;
        end = (struct request **)&q->state;
    }
    if (more < 0)
        return -1;
    while (list) {
        struct request *q = list;
        list = q->state;
        q->state = NULL;
        resume(q);
    }
    return 0;
}

/* Runs whose request is gone and that were never sent cannot be: what to run is not known. */
static void end_hopeless(struct runner *r)
{
    for (struct run *run = r->runs, *next; run; run = next) {
        next = run->next;
        if (run->state == RUN_QUEUED && !run->want && !run->args)
            run_abandon(run, "the runner was restarted before the command was started");
        else if (!sandbox_find(r, run->sandbox))
            run_abandon(run, "its sandbox does not exist any more");
    }
}

int requests_start(struct runner *r, struct err *e)
{
    struct buf path = BUF_INIT(PATH_MAX);
    layout_doorbell(r->cfg, &path);
    /* Reading and writing: there is always a writer, so the end of one is no event. */
    r->doorbell_fd = open(path.p, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (r->doorbell_fd < 0)
        err_sys(e, "cannot open %s", path.p);
    buf_release(&path);
    if (r->doorbell_fd < 0 || resume_taken(r, e) < 0)
        return -1;
    end_hopeless(r);
    int n = sd_event_add_io(r->loop, &r->doorbell, r->doorbell_fd, EPOLLIN, on_bell, r);
    errno = -n;
    if (n < 0)
        return err_sys(e, "cannot watch the doorbell");
    while (take_queued(r) == BATCH)
        ;
    return 0;
}

void requests_stop(struct runner *r)
{
    if (r->doorbell)
        r->doorbell = sd_event_source_disable_unref(r->doorbell);
    timer_off(&r->take_timer);
    closep(&r->doorbell_fd);
    r->doorbell_fd = -1;
}
