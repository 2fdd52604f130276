#include "jobs-runner/outbox.h"

#include "common/clock.h"
#include "common/layout.h"
#include "common/log.h"
#include "common/wire.h"
#include "jobs-runner/housekeeper.h"
#include "jobs-runner/queries.h"
#include "jobs-runner/sandbox.h"

struct answer {
    int64_t request;
    char reply[64];
    bool ok;
    char *result;
};

/* Callers ask again and again: their FIFOs stay open, the oldest gives way. */
struct bell_rope {
    char reply[64];
    int fd; /* valid when reply is set */
};

#define ROPES  128
#define LAG_US 5000 /* most that the history is behind */

struct outbox {
    struct runner *r;
    struct bell_rope ropes[ROPES];
    size_t next_rope;
    struct outbox_run_end *ends;
    struct answer *answers;
    size_t n_ends, cap_ends, n_answers, cap_answers;
    size_t n_due; /* the first so many ends are written by the next flush, the others by a later */
    sd_event_source *flush; /* runs once in the turn in which something came */
    sd_event_source *retry;
};

static void rope_drop(struct bell_rope *b)
{
    if (*b->reply)
        (void)close(b->fd);
    b->reply[0] = '\0';
}

static int on_flush(sd_event_source *s, void *arg)
{
    (void)s;
    outbox_flush(arg);
    return 0;
}

int outbox_new(struct runner *r, struct outbox **ret, struct err *e)
{
    struct outbox *o = xcalloc(1, sizeof *o);
    o->r = r;
    int n = sd_event_add_defer(r->loop, &o->flush, on_flush, o);
    if (n < 0 || sd_event_source_set_enabled(o->flush, SD_EVENT_OFF) < 0) {
        errno = -n;
        free(o);
        return err_sys(e, "cannot add an event source");
    }
    *ret = o;
    return 0;
}

/* What was due is done; what waits behind it is due next. */
static void clear_due(struct outbox *o)
{
    for (size_t i = 0; i < o->n_due; i++) {
        free(o->ends[i].reason);
        free(o->ends[i].result);
        free(o->ends[i].command);
    }
    for (size_t i = 0; i < o->n_answers; i++)
        free(o->answers[i].result);
    o->n_ends -= o->n_due;
    if (o->n_ends)
        memmove(o->ends, o->ends + o->n_due, o->n_ends * sizeof *o->ends);
    o->n_due = o->n_ends;
    o->n_answers = 0;
}

struct outbox *outbox_free(struct outbox *o)
{
    if (!o)
        return NULL;
    o->n_due = o->n_ends;
    clear_due(o);
    for (size_t i = 0; i < ROPES; i++)
        rope_drop(&o->ropes[i]);
    free(o->ends);
    free(o->answers);
    (void)sd_event_source_disable_unref(o->flush);
    timer_off(&o->retry);
    free(o);
    return NULL;
}

static void *grow(void *p, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return p;
    *cap = *cap ? *cap * 2 : 16;
    return xrealloc(p, *cap * size);
}

void outbox_run_end(struct outbox *o, const struct outbox_run_end *end)
{
    o->ends = grow(o->ends, o->n_ends, &o->cap_ends, sizeof *o->ends);
    o->ends[o->n_ends++] = *end;
    if (!end->command) { /* its row exists and must not lag behind the answer */
        struct outbox_run_end waits = o->ends[o->n_due];
        o->ends[o->n_due++] = *end;
        if (o->n_due < o->n_ends)
            o->ends[o->n_ends - 1] = waits;
    }
    (void)sd_event_source_set_enabled(o->flush, SD_EVENT_ONESHOT);
}

void outbox_answer(struct outbox *o, int64_t request, const char *reply, bool ok, char *result)
{
    o->answers = grow(o->answers, o->n_answers, &o->cap_answers, sizeof *o->answers);
    struct answer *a = &o->answers[o->n_answers++];
    *a = (struct answer){.request = request, .ok = ok, .result = result};
    (void)snprintf(a->reply, sizeof a->reply, "%s", reply);
    (void)sd_event_source_set_enabled(o->flush, SD_EVENT_ONESHOT);
}

static int write_end(struct runner *r, const struct outbox_run_end *x, struct err *e)
{
    int64_t code = x->exit_code, sig = x->signal;
    if (x->command)
        return db_run(&r->db, Q_RUN_INSERT_ENDED, e, "ttittIIiitiiiii", x->id, x->sandbox,
                      x->generation, x->command, x->status, code < 0 ? NULL : &code,
                      sig ? &sig : NULL, (int64_t)x->oom_killed, x->left_running, x->reason,
                      x->started_at, clock_real_ms(), x->duration_us, x->timeout_ms,
                      (int64_t)x->log);
    return db_run(&r->db, Q_RUN_END, e, "tIIiitiiitt", x->status, code < 0 ? NULL : &code,
                  sig ? &sig : NULL, (int64_t)x->oom_killed, x->left_running, x->reason,
                  clock_real_ms(), x->duration_us, (int64_t)x->log, x->result, x->id);
}

static int write_all(struct outbox *o, struct err *e)
{
    struct runner *r = o->r;
    if (db_begin(&r->db, e) < 0)
        return -1;
    int failed = 0;
    for (size_t i = 0; i < o->n_due && !failed; i++)
        failed = write_end(r, &o->ends[i], e);
    for (size_t i = 0; i < o->n_answers && !failed; i++)
        failed = db_run(&r->db, Q_REQUEST_ANSWER, e, "iti", (int64_t)o->answers[i].ok,
                        o->answers[i].result, o->answers[i].request);
    if (!failed)
        return db_commit(&r->db, e);
    db_rollback(&r->db);
    return -1;
}

/* The open FIFO of a caller, or NULL when nobody reads it. */
static struct bell_rope *rope_of(struct outbox *o, const char *reply)
{
    for (size_t i = 0; i < ROPES; i++)
        if (streq(o->ropes[i].reply, reply))
            return &o->ropes[i];
    struct buf path = BUF_INIT(PATH_MAX);
    layout_reply(o->r->cfg, reply, &path);
    int fd = open(path.p, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    buf_release(&path);
    if (fd < 0)
        return NULL;
    struct bell_rope *b = &o->ropes[o->next_rope++ % ROPES];
    rope_drop(b);
    (void)snprintf(b->reply, sizeof b->reply, "%s", reply);
    b->fd = fd;
    return b;
}

void outbox_ring(struct outbox *o, const char *reply, int64_t request)
{
    unsigned char id[8];
    struct bell_rope *b = *reply ? rope_of(o, reply) : NULL;
    wire_u64_put(id, (uint64_t)request);
    if (b && write(b->fd, id, sizeof id) < 0 && errno != EAGAIN && errno != EINTR)
        rope_drop(b); /* its reader is gone; a full FIFO is looked at all the same */
}

static void tell_callers(struct outbox *o)
{
    for (size_t i = 0; i < o->n_answers; i++)
        outbox_ring(o, o->answers[i].reply, o->answers[i].request);
    for (size_t i = 0; i < o->n_due; i++)
        if (o->ends[i].stream)
            sandbox_forget_run(o->r, o->ends[i].sandbox, o->ends[i].link, o->ends[i].stream);
}

static int on_retry(sd_event_source *s, uint64_t usec, void *arg)
{
    (void)s;
    (void)usec;
    outbox_flush(arg);
    return 0;
}

void outbox_flush(struct outbox *o)
{
    if (!o->n_ends && !o->n_answers)
        return;
    if (!o->n_answers)
        o->n_due = o->n_ends;
    struct err e = ERR_INIT;
    if (write_all(o, &e) < 0) {
        log_err(LOG_LEVEL_ERROR, "cannot store results, trying again", &e);
        (void)timer_after(o->r, &o->retry, 1000000, on_retry, o);
        return;
    }
    tell_callers(o);
    housekeeper_count(o->r->housekeeper, 1);
    clear_due(o);
    if (o->n_ends)
        (void)timer_after(o->r, &o->retry, LAG_US, on_retry, o);
}

void outbox_spare_moment(struct outbox *o)
{
    if (o->n_ends && !o->n_answers)
        outbox_flush(o);
}
