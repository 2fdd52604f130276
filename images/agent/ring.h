/*
 * ring.h - the output of one run that the runner has not acknowledged yet.
 *
 * Purpose:   stdout and stderr as one sequence of bytes with absolute offsets, plus the marks that
 *            tell which of the two each stretch came from, so that it can be sent again.
 * Ownership: the ring owns its memory. A zeroed struct is an empty ring at offset 0.
 * Memory:    nothing until the first byte, then 4 KiB, growing to WIRE_WINDOW. ring_trim() gives
 *            back what an empty ring holds.
 * Limits:    WIRE_WINDOW bytes, RING_MARKS changes between the two streams. At either limit
 *            ring_room() is 0 and the caller stops reading.
 */
#ifndef AGENT_RING_H
#define AGENT_RING_H

#include "images/agent/base.h"

#include <sys/uio.h>

#define RING_MARKS 4096u

struct ring {
    unsigned char *p;
    size_t cap;
    uint64_t start; /* first byte kept */
    uint64_t next;  /* first byte not sent on this connection */
    uint64_t end;   /* bytes produced so far */
    uint32_t *mark; /* circular; each is length << 1 | stderr */
    uint32_t mark_cap;
    uint32_t mark_head; /* counters, taken modulo mark_cap */
    uint32_t mark_tail;
    uint32_t mark_next; /* the mark that holds `next` */
    uint32_t mark_sent; /* bytes of it that are sent */
};

/* How many bytes of a stream may be added now. */
size_t ring_room(const struct ring *r, bool err);

/* Two pieces of free memory, at most `most` bytes together; grows. Returns their number. */
int ring_space(struct ring *r, bool err, size_t most, struct iovec v[2]);
void ring_added(struct ring *r, size_t n, bool err);

/* The next unsent stretch of one stream, at most `most` bytes, as sent. Returns the pieces. */
int ring_send(struct ring *r, size_t most, struct iovec v[2], bool *err);

void ring_forget(struct ring *r, uint64_t before); /* start <= before <= end */
void ring_seek(struct ring *r, uint64_t next);     /* start <= next <= end */
void ring_trim(struct ring *r);
void ring_release(struct ring *r);

#endif
