#include "images/agent/run.h"

#include "images/agent/cgroup.h"
#include "images/agent/left.h"
#include "images/agent/tree.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TIMEOUT_MAX_MS 1000000000000u /* some thirty years: none at all */

static struct run *runs;
static uint32_t last_stream;

static void run_timed_out(struct timer *t);

struct run *run_new(uint32_t stream, const char *id)
{
    struct run *r = calloc(1, sizeof *r);
    if (!r)
        return NULL;
    r->stream = stream;
    snprintf(r->id, sizeof r->id, "%s", id);
    r->attached = true;
    r->deadline.fire = run_timed_out;
    run_out_init(r);
    run_in_init(r);
    r->next = runs;
    runs = r;
    run_saw_stream(stream);
    return r;
}

struct run *run_free(struct run *r)
{
    if (!r)
        return NULL;
    struct run **at = &runs;
    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    if (r->hunt)
        hunt_cancel(r->hunt);
    sender_unqueue(&r->out);
    timer_stop(&r->deadline);
    run_in_close(r);
    for (size_t i = 0; i < ARRAY_LEN(r->pipe); i++)
        source_close(&r->pipe[i].src);
    ring_release(&r->ring);
    queue_release(&r->request);
    free(r);
    return NULL;
}

struct run *run_first(void)
{
    return runs;
}

struct run *run_by_stream(uint32_t stream)
{
    struct run *r = runs;
    while (r && r->stream != stream)
        r = r->next;
    return r;
}

struct run *run_by_id(const char *id)
{
    struct run *r = runs;
    while (r && strcmp(r->id, id) != 0)
        r = r->next;
    return r;
}

uint32_t run_next_stream(void)
{
    return last_stream + 1;
}

void run_saw_stream(uint32_t stream)
{
    if (stream > last_stream)
        last_stream = stream;
}

/* Runs that never started are forgotten: the new runner does not find them and may ask again. */
void run_lost_runner(void)
{
    for (struct run *r = runs, *next; r; r = next) {
        next = r->next;
        r->attached = false;
        if (r->state == RUN_COLLECTING)
            run_free(r);
    }
}

void run_started(struct run *r, uint64_t timeout_ms)
{
    r->state = RUN_LIVE;
    r->owes_started = true;
    r->oom_before = cgroup_oom_seen();
    if (timeout_ms && timeout_ms < TIMEOUT_MAX_MS)
        timer_set(&r->deadline, r->started_us + timeout_ms * 1000);
    run_out_wake(r, false);
}

/* The main process is dead and nothing of the tree has to be ended: what is the result? */
static void run_settle(struct run *r)
{
    r->state = RUN_DRAINING;
    timer_stop(&r->deadline);
    r->alone = left_alone();
    r->left = r->alone ? 0 : left_count(r->id, r->pid, run_is_main);
    r->oom = cgroup_oom_kills() > r->oom_before;
    run_in_close(r);
    run_out_measure(r);
    run_advance(r);
}

void run_advance(struct run *r)
{
    if (r->state != RUN_DRAINING || !run_out_collect(r))
        return;
    run_out_let_go(r);
    r->state = RUN_ENDED;
    run_out_wake(r, true);
}

static bool run_is_reaped(const struct run *r)
{
    return r->duration_us != 0;
}

static void run_tree_ended(void *arg, unsigned left)
{
    struct run *r = arg;
    r->hunt = NULL;
    if (r->state != RUN_LIVE || !run_is_reaped(r))
        return;
    run_settle(r);
    if (left > r->left)
        r->left = left;
}

/* A run that is over still has its leftovers ended, but nobody waits for that. */
void run_stop_tree(struct run *r, int sig, uint64_t grace_ms)
{
    if (r->hunt) {
        hunt_hasten(r->hunt, sig, grace_ms);
        return;
    }
    struct hunt_target target = {.main_pid = r->pid, .main_gone = run_is_reaped(r)};
    memcpy(target.run_id, r->id, sizeof target.run_id);
    bool live = r->state == RUN_LIVE;
    struct hunt *h = hunt_start(&target, sig, grace_ms, live ? run_tree_ended : NULL, r);
    if (live)
        r->hunt = h;
}

static void run_timed_out(struct timer *t)
{
    struct run *r = CONTAINER_OF(t, struct run, deadline);
    r->timed_out = true;
    run_stop_tree(r, SIGTERM, r->grace_ms);
}

static struct run *run_by_pid(pid_t pid)
{
    struct run *r = runs;
    while (r && (r->pid != pid || r->state != RUN_LIVE || run_is_reaped(r)))
        r = r->next;
    return r;
}

bool run_is_main(pid_t pid)
{
    return run_by_pid(pid) != NULL;
}

bool run_any_live(void)
{
    struct run *r = runs;
    while (r && r->state != RUN_LIVE)
        r = r->next;
    return r != NULL;
}

bool run_reaped(pid_t pid, int status)
{
    struct run *r = run_by_pid(pid);
    if (!r)
        return false;
    r->status = status;
    r->duration_us = clock_us() - r->started_us;
    r->duration_us += r->duration_us == 0;
    if (r->hunt)
        hunt_main_gone(r->hunt);
    return true;
}

/* Only after all dead children are reaped does "is anything else alive" have a true answer. */
void run_reaped_all(void)
{
    for (struct run *r = runs, *next; r; r = next) {
        next = r->next;
        if (r->state == RUN_LIVE && run_is_reaped(r) && !r->hunt)
            run_settle(r);
    }
}
