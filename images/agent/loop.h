/*
 * loop.h - the event loop: descriptors, timers, and a hook at the end of each turn.
 *
 * Ownership: sources and timers live inside their owners' structures; the loop only points at
 *            them. An owner calls source_close() or source_watch(s, 0), and timer_stop(), before
 *            its memory goes away. Both may be called from any callback, also for a source whose
 *            event is waiting in the same batch: that event is dropped.
 * Time:      microseconds of the monotonic clock.
 * Errors:    failing to register a descriptor is reported; everything else cannot fail.
 */
#ifndef AGENT_LOOP_H
#define AGENT_LOOP_H

#include "images/agent/base.h"

struct source {
    int fd;
    uint32_t events; /* what epoll watches now; 0: not registered */
    void (*ready)(struct source *s, uint32_t events);
};

struct timer {
    uint64_t at; /* 0: not set */
    struct timer *next;
    void (*fire)(struct timer *t);
};

int loop_init(void);

/* Runs until loop_stop(). turn_end is called after each batch of events and timers. */
void loop_run(void (*turn_end)(void));
void loop_stop(void);

/* Do not sleep before the next turn: somebody stopped in the middle to be fair to others. */
void loop_again(void);

uint64_t clock_us(void); /* asks the clock */
uint64_t loop_now(void); /* the time this turn began */

/* Watch for these epoll events; 0 stops watching. */
int source_watch(struct source *s, uint32_t events);
void source_close(struct source *s);

void timer_set(struct timer *t, uint64_t at);
void timer_stop(struct timer *t);

#endif
