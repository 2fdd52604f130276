/*
 * queue.h - a first-in first-out run of bytes that grows.
 *
 * Ownership: the queue owns its memory. A zeroed struct is an empty queue.
 * Memory:    whole pages from mmap, so that queue_release() really returns them to the kernel.
 * Errors:    queue_room() and queue_add() fail (NULL, -1) when the kernel has no memory; the queue
 *            is unchanged then.
 * Pointers:  what queue_head() and queue_room() return is valid until the next call that adds.
 */
#ifndef AGENT_QUEUE_H
#define AGENT_QUEUE_H

#include "images/agent/base.h"

struct queue {
    unsigned char *p;
    size_t cap;
    size_t from; /* the first byte */
    size_t len;
};

/* At least n writable bytes behind the last one. They count only after queue_added(). */
unsigned char *queue_room(struct queue *q, size_t n);
void queue_added(struct queue *q, size_t n);
int queue_add(struct queue *q, const void *p, size_t n);

/* The room that needs neither growing nor moving. */
size_t queue_spare(const struct queue *q);

unsigned char *queue_head(const struct queue *q);
void queue_drop(struct queue *q, size_t n);
void queue_release(struct queue *q);

#endif
