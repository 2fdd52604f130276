#include "images/agent/sender.h"

#include "images/agent/loop.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#define BATCHES_A_TURN 4
#define TEXT_MAX       1024

static void sender_due(struct timer *t);

static struct {
    bool open;
    bool due; /* flush at the end of this turn */
    struct queue bytes;
    struct producer *first;
    struct producer **last;
    struct timer later;
} out = {.last = &out.first, .later = {.fire = sender_due}};

static void sender_due(struct timer *t)
{
    (void)t;
    out.due = true;
}

void sender_open(void)
{
    out.open = true;
}

bool sender_is_open(void)
{
    return out.open;
}

void sender_close(void)
{
    while (out.first)
        sender_unqueue(out.first);
    queue_release(&out.bytes);
    timer_stop(&out.later);
    out.open = out.due = false;
}

static void sender_line_up(struct producer *p)
{
    p->queued = true;
    p->next = NULL;
    *out.last = p;
    out.last = &p->next;
}

void sender_queue(struct producer *p, uint64_t at)
{
    if (!out.open)
        return;
    if (!p->queued)
        sender_line_up(p);
    if (at <= loop_now())
        out.due = true;
    else if (!out.later.at || at < out.later.at)
        timer_set(&out.later, at);
}

void sender_unqueue(struct producer *p)
{
    if (!p->queued)
        return;
    struct producer **at = &out.first;
    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    if (!*at)
        out.last = at;
    p->queued = false;
}

unsigned char *batch_small(struct batch *b, size_t n)
{
    return n <= BATCH_SMALL - b->used ? b->small + b->used : NULL;
}

void batch_small_added(struct batch *b, size_t n)
{
    unsigned char *p = b->small + b->used;
    struct iovec *last = &b->iov[b->count - 1];
    b->used += n;
    b->bytes += n;
    if (b->count > 1 && (unsigned char *)last->iov_base + last->iov_len == p)
        last->iov_len += n;
    else
        b->iov[b->count++] = (struct iovec){p, n};
}

void batch_data(struct batch *b, const struct iovec *v, int count)
{
    for (int i = 0; i < count; i++) {
        b->iov[b->count++] = v[i];
        b->bytes += v[i].iov_len;
    }
}

static bool batch_takes_more(const struct batch *b)
{
    return b->bytes + out.bytes.len < BATCH_BYTES && b->count + 8 <= BATCH_IOV &&
           b->used + BATCH_RESERVE <= BATCH_SMALL;
}

void sender_frame(enum wire_type type, unsigned flags, uint32_t stream, const void *p, size_t n)
{
    unsigned char *to = sender_payload(n);
    if (!to)
        return;
    if (n)
        memcpy(to, p, n);
    sender_payload_end(type, flags, stream, n);
}

void sender_msg(struct msg *m, enum wire_type type, unsigned flags, uint32_t stream)
{
    sender_frame(type, flags, stream, m->p + WIRE_HEADER, m->n - WIRE_HEADER);
}

void sender_failed(uint32_t stream, int error, const char *format, ...)
{
    unsigned char b[TEXT_MAX + 64];
    char text[TEXT_MAX];
    struct msg m;
    va_list ap;
    va_start(ap, format);
    int n = vsnprintf(text, sizeof text, format, ap);
    va_end(ap);
    msg_begin(&m, b, sizeof b);
    msg_number(&m, WT_ERRNO, (uint64_t)error);
    msg_bytes(&m, WT_TEXT, text, n < 0 ? 0 : min_size((size_t)n, sizeof text - 1));
    sender_msg(&m, WIRE_FAILED, 0, stream);
}

unsigned char *sender_payload(size_t n)
{
    if (!out.open)
        return NULL;
    unsigned char *p = queue_room(&out.bytes, WIRE_HEADER + n);
    return p ? p + WIRE_HEADER : NULL;
}

void sender_payload_end(enum wire_type type, unsigned flags, uint32_t stream, size_t n)
{
    struct wire_header h = {(uint32_t)n, (uint8_t)type, (uint8_t)flags, stream};
    wire_header_put(queue_head(&out.bytes) + out.bytes.len, &h);
    queue_added(&out.bytes, WIRE_HEADER + n);
    out.due = true;
}

size_t sender_backlog(void)
{
    return out.bytes.len;
}

static void sender_collect(struct batch *b)
{
    b->count = 1;
    b->bytes = b->used = 0;
    while (out.first && batch_takes_more(b)) {
        struct producer *p = out.first;
        sender_unqueue(p);
        if (p->emit(p, b))
            sender_line_up(p);
    }
    b->iov[0] = (struct iovec){out.bytes.len ? queue_head(&out.bytes) : NULL, out.bytes.len};
    b->bytes += out.bytes.len;
}

/* The socket took n bytes; what it left of the batch is copied, for the batch ends here. */
static int sender_keep_rest(const struct batch *b, size_t n)
{
    size_t skip = min_size(n, b->iov[0].iov_len);
    queue_drop(&out.bytes, skip);
    n -= skip;
    for (unsigned i = 1; i < b->count; i++) {
        skip = min_size(n, b->iov[i].iov_len);
        n -= skip;
        if (queue_add(&out.bytes, (const char *)b->iov[i].iov_base + skip,
                      b->iov[i].iov_len - skip))
            return -1;
    }
    return 0;
}

static enum sender_state sender_write(int fd, const struct batch *b)
{
    struct iovec *v = (struct iovec *)(uintptr_t)b->iov;
    unsigned skip = v[0].iov_len ? 0 : 1;
    struct msghdr m = {.msg_iov = v + skip, .msg_iovlen = b->count - skip};
    ssize_t n = sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        return SENDER_BROKEN;
    if (sender_keep_rest(b, n < 0 ? 0 : (size_t)n))
        return SENDER_BROKEN;
    return n >= 0 && (size_t)n == b->bytes ? SENDER_IDLE : SENDER_BLOCKED;
}

enum sender_state sender_flush(int fd, bool writable)
{
    if (!writable)
        return SENDER_BLOCKED;
    if (!out.due)
        return SENDER_IDLE;
    struct batch b;
    out.due = false;
    timer_stop(&out.later);
    for (int i = 0; i < BATCHES_A_TURN; i++) {
        sender_collect(&b);
        if (!b.bytes && !out.first)
            return SENDER_IDLE;
        enum sender_state s = b.bytes ? sender_write(fd, &b) : SENDER_IDLE;
        if (s != SENDER_IDLE) {
            out.due = true;
            return s;
        }
    }
    out.due = true;
    loop_again();
    return SENDER_IDLE;
}

bool sender_is_bulky(void)
{
    return out.bytes.cap > BATCH_SMALL;
}

void sender_trim(void)
{
    if (!out.bytes.len && sender_is_bulky())
        queue_release(&out.bytes);
}
