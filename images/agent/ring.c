#include "images/agent/ring.h"

#include "common/wire.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define FIRST_CAP   4096u
#define FIRST_MARKS 16u

/* Most runs print little: the last small block waits here for the next run. */
static void *spare_block;

static void *block_get(size_t n)
{
    if (n == FIRST_CAP && spare_block) {
        void *p = spare_block;
        spare_block = NULL;
        return p;
    }
    void *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return p == MAP_FAILED ? NULL : p;
}

static void block_put(void *p, size_t n)
{
    if (n == FIRST_CAP && !spare_block)
        spare_block = p;
    else if (p)
        munmap(p, n);
}

static size_t used(const struct ring *r)
{
    return (size_t)(r->end - r->start);
}

/* The pieces of memory that hold n bytes from an absolute offset on. */
static int pieces(const struct ring *r, uint64_t from, size_t n, struct iovec v[2])
{
    size_t at = (size_t)from & (r->cap - 1);
    size_t first = min_size(n, r->cap - at);
    v[0] = (struct iovec){r->p + at, first};
    v[1] = (struct iovec){r->p, n - first};
    return n == 0 ? 0 : n == first ? 1 : 2;
}

static bool same_stream(const struct ring *r, bool err)
{
    return r->mark_head != r->mark_tail &&
           (r->mark[(r->mark_tail - 1) & (r->mark_cap - 1)] & 1u) == (err ? 1u : 0u);
}

size_t ring_room(const struct ring *r, bool err)
{
    if (r->mark_tail - r->mark_head == RING_MARKS && !same_stream(r, err))
        return 0;
    return WIRE_WINDOW - used(r);
}

static int ring_grow(struct ring *r)
{
    size_t cap = r->cap ? r->cap * 4 : FIRST_CAP;
    unsigned char *p = block_get(cap);
    if (!p)
        return -1;
    struct ring bigger = {.p = p, .cap = cap};
    struct iovec from[2], to[2];
    if (r->cap) {
        /* Same offsets, other modulus: copy in pieces that are whole in both. */
        for (uint64_t at = r->start; at < r->end;) {
            pieces(r, at, (size_t)(r->end - at), from);
            pieces(&bigger, at, from[0].iov_len, to);
            memcpy(to[0].iov_base, from[0].iov_base, to[0].iov_len);
            at += to[0].iov_len;
        }
        block_put(r->p, r->cap);
    }
    r->p = p;
    r->cap = cap;
    return 0;
}

/* Marks are added by ring_added(), which must not fail, so the place is made here. */
static int ring_mark_room(struct ring *r)
{
    uint32_t n = r->mark_tail - r->mark_head;
    if (n < r->mark_cap)
        return 0;
    uint32_t cap = r->mark_cap ? r->mark_cap * 4 : FIRST_MARKS;
    uint32_t *m = malloc(cap * sizeof *m);
    if (!m)
        return -1;
    for (uint32_t i = r->mark_head; i != r->mark_tail; i++)
        m[i & (cap - 1)] = r->mark[i & (r->mark_cap - 1)];
    free(r->mark);
    r->mark = m;
    r->mark_cap = cap;
    return 0;
}

int ring_space(struct ring *r, bool err, size_t most, struct iovec v[2])
{
    size_t room = min_size(ring_room(r, err), most);
    if (!room || ring_mark_room(r))
        return 0;
    while (r->cap < WIRE_WINDOW && r->cap - used(r) <= r->cap / 4)
        if (ring_grow(r))
            break;
    if (!r->cap)
        return 0;
    return pieces(r, r->end, min_size(room, r->cap - used(r)), v);
}

void ring_added(struct ring *r, size_t n, bool err)
{
    if (same_stream(r, err))
        r->mark[(r->mark_tail - 1) & (r->mark_cap - 1)] += (uint32_t)n << 1;
    else
        r->mark[r->mark_tail++ & (r->mark_cap - 1)] = (uint32_t)n << 1 | (err ? 1u : 0u);
    r->end += n;
}

int ring_send(struct ring *r, size_t most, struct iovec v[2], bool *err)
{
    if (r->next == r->end)
        return 0;
    uint32_t mark = r->mark[r->mark_next & (r->mark_cap - 1)];
    if (r->mark_sent == mark >> 1) {
        mark = r->mark[++r->mark_next & (r->mark_cap - 1)];
        r->mark_sent = 0;
    }
    size_t n = min_size(most, (mark >> 1) - r->mark_sent);
    int count = pieces(r, r->next, n, v);
    r->mark_sent += (uint32_t)n;
    r->next += n;
    *err = mark & 1u;
    return count;
}

/*
 * Walk to an offset; the marks before it are passed, or forgotten when `drop`. Passing stops at
 * the last mark even when it is sent to its end, because that one may still grow.
 */
static void ring_walk(struct ring *r, uint64_t to, bool drop)
{
    uint64_t at = r->start;
    uint32_t i = r->mark_head;
    uint32_t stop = drop || r->mark_head == r->mark_tail ? r->mark_tail : r->mark_tail - 1;
    while (i != stop && at + (r->mark[i & (r->mark_cap - 1)] >> 1) <= to)
        at += r->mark[i++ & (r->mark_cap - 1)] >> 1;
    if (!drop) {
        r->mark_next = i;
        r->mark_sent = (uint32_t)(to - at);
        return;
    }
    r->mark_head = i;
    if (i != r->mark_tail)
        r->mark[i & (r->mark_cap - 1)] -= (uint32_t)(to - at) << 1;
}

void ring_forget(struct ring *r, uint64_t before)
{
    ring_walk(r, before, true);
    r->start = before;
    if (r->next < before)
        r->next = before;
    ring_seek(r, r->next);
}

void ring_seek(struct ring *r, uint64_t next)
{
    r->next = next;
    ring_walk(r, next, false);
}

void ring_trim(struct ring *r)
{
    if (!r->cap || used(r))
        return;
    block_put(r->p, r->cap);
    r->p = NULL;
    r->cap = 0;
    free(r->mark);
    r->mark = NULL;
    r->mark_cap = 0;
    r->mark_head = r->mark_tail = r->mark_next = r->mark_sent = 0;
}

void ring_release(struct ring *r)
{
    if (r->p)
        block_put(r->p, r->cap);
    free(r->mark);
    *r = (struct ring){0};
}
