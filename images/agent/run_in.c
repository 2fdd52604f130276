#include "images/agent/run.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define DATA_MAX (64u << 20) /* bytes of collected stdin */
#define TTY_EOF  "\x04"

static void in_ready(struct source *s, uint32_t events);

void run_in_init(struct run *r)
{
    r->in.src = (struct source){.fd = -1, .ready = in_ready};
}

void run_in_close(struct run *r)
{
    source_close(&r->in.src);
    queue_release(&r->in.pending);
}

static void in_took(struct run *r, uint64_t n)
{
    r->in.taken += n;
    r->owes_stdin_ack = true;
    run_out_wake(r, true);
}

/* The command closed its end: the rest goes nowhere, but the runner must not wait for credit. */
static void in_broken(struct run *r)
{
    run_in_close(r);
    in_took(r, r->in.received - r->in.taken);
}

static void in_end(struct run *r)
{
    if (r->pty)
        (void)!write(r->in.src.fd, TTY_EOF, 1);
    else
        run_in_close(r);
}

static void in_push(struct run *r)
{
    struct run_stdin *in = &r->in;
    while (in->src.fd >= 0 && in->pending.len) {
        ssize_t n = write(in->src.fd, queue_head(&in->pending), in->pending.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0) {
            in_broken(r);
            return;
        }
        queue_drop(&in->pending, (size_t)n);
        in_took(r, (uint64_t)n);
    }
    if (!in->pending.len)
        queue_release(&in->pending);
    if (in->src.fd >= 0 && !in->pending.len && in->eof)
        in_end(r);
    if (in->src.fd >= 0 && source_watch(&in->src, in->pending.len ? EPOLLOUT : 0))
        in_broken(r);
}

static void in_ready(struct source *s, uint32_t events)
{
    struct run *r = CONTAINER_OF(s, struct run, in.src);
    if (events & EPOLLOUT)
        in_push(r);
    else
        in_broken(r);
}

static int in_collect(struct run *r, const unsigned char *p, size_t n)
{
    if (r->in.received + n > DATA_MAX) {
        errno = EFBIG;
        return -1;
    }
    for (size_t at = 0; at < n;) {
        ssize_t w = write(r->in.src.fd, p + at, n - at);
        if (w < 0 && errno != EINTR)
            return -1;
        at += w > 0 ? (size_t)w : 0;
    }
    r->in.received += n;
    return 0;
}

/* Returns 0; -1 for a breach of the window; 1 when collecting failed, with errno. */
int run_in_frame(struct run *r, const unsigned char *p, size_t n, bool eof)
{
    struct run_stdin *in = &r->in;
    if (in->eof || in->mode == WIRE_STDIN_NONE)
        return 0;
    if (in->mode == WIRE_STDIN_DATA) {
        in->eof = eof;
        return in_collect(r, p, n) ? 1 : 0;
    }
    if (in->received + n - in->taken > WIRE_STDIN_WINDOW)
        return -1;
    in->received += n;
    in->eof = eof;
    if (in->src.fd < 0 || queue_add(&in->pending, p, n))
        in_broken(r);
    else
        in_push(r);
    return 0;
}
