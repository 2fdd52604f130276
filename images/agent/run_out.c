#include "images/agent/run.h"

#include "images/agent/drain.h"
#include "images/agent/left.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define READ_MAX    65536u /* bytes from one pipe in one turn */
#define FRAME_MAX   32768u
#define BIG_OUTPUT  (256u << 10) /* a run that printed this much gets larger pipes */
#define YOUNG_US    2000u        /* a younger run's frames wait for each other, see below */
#define TRIM_US     300000u      /* an empty ring may keep its memory this long */
#define RESUME_ROOM (WIRE_WINDOW / 4)

static void trim_rings(struct timer *t);
static void pipe_ready(struct source *s, uint32_t events);
static bool run_emit(struct producer *p, struct batch *b);

static struct timer trim = {.fire = trim_rings};

/* A run that is quiet now does not keep the memory of its last flood. */
static void trim_rings(struct timer *t)
{
    (void)t;
    for (struct run *r = run_first(); r; r = r->next)
        ring_trim(&r->ring);
}

void run_out_init(struct run *r)
{
    r->out.emit = run_emit;
    for (size_t i = 0; i < ARRAY_LEN(r->pipe); i++)
        r->pipe[i] = (struct run_pipe){.src = {.fd = -1, .ready = pipe_ready}, .run = r, .err = i};
}

static bool pipe_has_room(const struct run_pipe *p)
{
    return ring_room(&p->run->ring, p->err) > 0;
}

int run_out_watch(struct run *r)
{
    for (size_t i = 0; i < ARRAY_LEN(r->pipe); i++) {
        struct run_pipe *p = &r->pipe[i];
        if (p->src.fd >= 0 && source_watch(&p->src, pipe_has_room(p) ? EPOLLIN : 0))
            return -1;
    }
    return 0;
}

/*
 * A command that ends within a millisecond or two should cost the runner one wake-up, not three.
 * So the first frames of a run may wait until it is YOUNG_US old; whatever is urgent takes them
 * along.
 */
void run_out_wake(struct run *r, bool soon)
{
    if (r->attached)
        sender_queue(&r->out, soon ? 0 : r->started_us + YOUNG_US);
}

static void pipe_grow(struct run_pipe *p)
{
    if (p->grown || p->run->pty || p->run->ring.end < BIG_OUTPUT)
        return;
    p->grown = true;
    (void)fcntl(p->src.fd, F_SETPIPE_SZ, (int)WIRE_WINDOW);
}

/* Returns what read() returns; -1 with ENOBUFS when the ring is full. */
static ssize_t pipe_read(struct run_pipe *p, size_t most)
{
    struct run *r = p->run;
    struct iovec v[2];
    int count = ring_space(&r->ring, p->err, most, v);
    if (!count) {
        errno = ENOBUFS;
        return -1;
    }
    ssize_t n = readv(p->src.fd, v, count);
    if (n > 0) {
        ring_added(&r->ring, (size_t)n, p->err);
        pipe_grow(p);
    }
    return n;
}

static void pipe_ready(struct source *s, uint32_t events)
{
    struct run_pipe *p = CONTAINER_OF(s, struct run_pipe, src);
    /* Hung up and nothing to read: the end, without asking read() for it. */
    ssize_t n = events & EPOLLIN ? pipe_read(p, READ_MAX) : 0;
    if (n > 0)
        run_out_wake(p->run, ring_room(&p->run->ring, p->err) < WIRE_WINDOW / 2);
    else if (n == 0 || (errno != EAGAIN && errno != EINTR && errno != ENOBUFS))
        source_close(s);
    if (s->fd >= 0 && !pipe_has_room(p))
        (void)run_out_watch(p->run);
}

void run_out_measure(struct run *r)
{
    for (size_t i = 0; i < ARRAY_LEN(r->pipe); i++) {
        struct run_pipe *p = &r->pipe[i];
        int n = 0;
        if (p->src.fd < 0)
            continue;
        (void)source_watch(&p->src, 0);
        /* A terminal does not tell; its reading end stops at EAGAIN or EIO. */
        p->owed = r->pty ? WIRE_WINDOW : !ioctl(p->src.fd, FIONREAD, &n) && n > 0 ? (uint32_t)n : 0;
    }
}

static bool pipe_collect(struct run_pipe *p)
{
    while (p->owed) {
        ssize_t n = pipe_read(p, p->owed);
        if (n < 0 && errno == ENOBUFS)
            return false;
        if (n <= 0 && !(n < 0 && errno == EINTR))
            p->owed = 0;
        else if (n > 0)
            p->owed -= (uint32_t)n;
    }
    return true;
}

bool run_out_collect(struct run *r)
{
    uint64_t before = r->ring.end;
    bool all = pipe_collect(&r->pipe[0]) && pipe_collect(&r->pipe[1]);
    if (r->ring.end != before)
        run_out_wake(r, true);
    return all;
}

void run_out_let_go(struct run *r)
{
    for (size_t i = 0; i < ARRAY_LEN(r->pipe); i++) {
        struct source *s = &r->pipe[i].src;
        if (s->fd < 0)
            continue;
        if (r->alone)
            source_close(s);
        else
            drain_take(s);
    }
}

void run_out_resume(struct run *r)
{
    if (r->state == RUN_DRAINING)
        run_advance(r);
    else if (r->state == RUN_LIVE && ring_room(&r->ring, false) >= RESUME_ROOM)
        (void)run_out_watch(r);
}

int run_out_ack(struct run *r, uint64_t before)
{
    if (before > r->ring.next)
        return -1;
    if (before <= r->ring.start)
        return 0;
    ring_forget(&r->ring, before);
    run_out_resume(r);
    if (r->state == RUN_ENDED)
        ring_trim(&r->ring);
    else if (!trim.at && r->ring.start == r->ring.end)
        timer_set(&trim, loop_now() + TRIM_US);
    return 0;
}

int run_out_attach(struct run *r, uint64_t from)
{
    if (from > r->ring.end)
        return -1;
    r->attached = true;
    r->exit_sent = false;
    r->owes_stdin_ack = r->in.mode == WIRE_STDIN_PIPE;
    ring_seek(&r->ring, from > r->ring.start ? from : r->ring.start);
    run_out_wake(r, true);
    return 0;
}

static void emit_number(struct run *r, struct batch *b, enum wire_type type, uint64_t v)
{
    struct msg m;
    unsigned char *p = batch_small(b, 64), raw[8];
    msg_begin(&m, p, 64);
    if (type == WIRE_STARTED) {
        msg_number(&m, WT_PID, v);
    } else {
        wire_u64_put(raw, v);
        msg_raw(&m, raw, sizeof raw);
    }
    batch_small_added(b, msg_end(&m, type, 0, r->stream));
}

static void emit_output(struct run *r, struct batch *b)
{
    struct iovec v[2];
    bool err = false;
    uint64_t offset = r->ring.next;
    int count = ring_send(&r->ring, FRAME_MAX, v, &err);
    if (!count)
        return;
    unsigned char *p = batch_small(b, WIRE_HEADER + 8);
    struct wire_header h = {(uint32_t)(r->ring.next - offset) + 8, WIRE_OUTPUT,
                            err ? WIRE_F_STDERR : 0, r->stream};
    wire_header_put(p, &h);
    wire_u64_put(p + WIRE_HEADER, offset);
    batch_small_added(b, WIRE_HEADER + 8);
    batch_data(b, v, count);
}

static void emit_exit(struct run *r, struct batch *b)
{
    struct msg m;
    msg_begin(&m, batch_small(b, 256), 256);
    if (WIFSIGNALED(r->status))
        msg_number(&m, WT_SIGNAL, (uint64_t)WTERMSIG(r->status));
    else
        msg_number(&m, WT_EXIT_CODE, (uint64_t)WEXITSTATUS(r->status));
    const struct {
        enum wire_tag tag;
        uint64_t v;
    } rest[] = {
        {WT_OFFSET, r->ring.end}, {WT_DURATION_US, r->duration_us}, {WT_LEFT, r->left},
        {WT_OOM, r->oom},         {WT_TIMED_OUT, r->timed_out},     {WT_STOPPED, r->stopped},
    };
    for (size_t i = 0; i < ARRAY_LEN(rest); i++)
        if (rest[i].v || rest[i].tag == WT_OFFSET || rest[i].tag == WT_LEFT)
            msg_number(&m, rest[i].tag, rest[i].v);
    batch_small_added(b, msg_end(&m, WIRE_EXIT, 0, r->stream));
    r->exit_sent = true;
}

static bool run_emit(struct producer *p, struct batch *b)
{
    struct run *r = CONTAINER_OF(p, struct run, out);
    if (r->owes_started)
        emit_number(r, b, WIRE_STARTED, (uint64_t)r->pid);
    r->owes_started = false;
    if (r->owes_stdin_ack)
        emit_number(r, b, WIRE_STDIN_ACK, r->in.taken);
    r->owes_stdin_ack = false;
    emit_output(r, b);
    if (r->ring.next != r->ring.end)
        return true;
    if (r->state == RUN_ENDED && !r->exit_sent)
        emit_exit(r, b);
    return false;
}
