#include "images/agent/loop.h"

#include <limits.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#define BATCH 32

static struct {
    int ep;
    int count;                       /* events in the batch */
    int next;                        /* the first one not handled yet */
    struct epoll_event batch[BATCH]; /* data.ptr is NULL when its source went away */
    struct timer *timers;            /* sorted, earliest first */
    uint64_t now;
    bool again;
    bool stopped;
} loop;

uint64_t clock_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

int loop_init(void)
{
    loop.ep = epoll_create1(EPOLL_CLOEXEC);
    loop.now = clock_us();
    return loop.ep < 0 ? -1 : 0;
}

void loop_stop(void)
{
    loop.stopped = true;
}

void loop_again(void)
{
    loop.again = true;
}

uint64_t loop_now(void)
{
    return loop.now;
}

static void forget_pending(const struct source *s)
{
    for (int i = loop.next; i < loop.count; i++)
        if (loop.batch[i].data.ptr == s)
            loop.batch[i].data.ptr = NULL;
}

int source_watch(struct source *s, uint32_t events)
{
    if (s->events == events)
        return 0;
    int op = !s->events ? EPOLL_CTL_ADD : events ? EPOLL_CTL_MOD : EPOLL_CTL_DEL;
    struct epoll_event e = {.events = events, .data = {.ptr = s}};
    if (!events)
        forget_pending(s);
    if (epoll_ctl(loop.ep, op, s->fd, &e))
        return -1;
    s->events = events;
    return 0;
}

/*
 * The explicit removal matters: a child between vfork and exec still holds a copy of every
 * descriptor, which would keep a closed one registered and its event pointing at freed memory.
 */
void source_close(struct source *s)
{
    if (s->fd < 0)
        return;
    (void)source_watch(s, 0);
    close(s->fd);
    s->fd = -1;
}

void timer_stop(struct timer *t)
{
    if (!t->at)
        return;
    struct timer **p = &loop.timers;
    while (*p && *p != t)
        p = &(*p)->next;
    if (*p)
        *p = t->next;
    t->at = 0;
}

void timer_set(struct timer *t, uint64_t at)
{
    timer_stop(t);
    t->at = at ? at : 1;
    struct timer **p = &loop.timers;
    while (*p && (*p)->at <= t->at)
        p = &(*p)->next;
    t->next = *p;
    *p = t;
}

static int wait_ms(void)
{
    if (loop.again)
        return 0;
    if (!loop.timers)
        return -1;
    uint64_t now = clock_us();
    if (loop.timers->at <= now)
        return 0;
    uint64_t ms = (loop.timers->at - now + 999) / 1000;
    return ms > INT_MAX ? INT_MAX : (int)ms;
}

static void run_timers(void)
{
    while (loop.timers && loop.timers->at <= loop.now) {
        struct timer *t = loop.timers;
        loop.timers = t->next;
        t->at = 0;
        t->fire(t);
    }
}

static void run_events(void)
{
    while (loop.next < loop.count) {
        struct epoll_event *e = &loop.batch[loop.next++];
        struct source *s = e->data.ptr;
        if (s)
            s->ready(s, e->events);
    }
}

void loop_run(void (*turn_end)(void))
{
    while (!loop.stopped) {
        int timeout = wait_ms();
        loop.again = false;
        loop.count = epoll_wait(loop.ep, loop.batch, BATCH, timeout);
        loop.next = 0;
        loop.now = clock_us();
        run_events();
        run_timers();
        turn_end();
    }
}
