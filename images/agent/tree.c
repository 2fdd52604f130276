#include "images/agent/tree.h"

#include "common/wire.h"
#include "images/agent/loop.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#define FIRST_LOOK_US 4000u    /* after the first signal most programs are gone this soon */
#define LAST_LOOK_US  100000u  /* pause between two looks at most */
#define KILL_ROUNDS   8        /* STOP rounds in one look, against a fork bomb */
#define GIVE_UP_US    5000000u /* after the first KILL */
#define GRACE_MAX_MS  86400000u

struct hunt {
    struct timer timer;
    struct hunt_target target;
    int sig;
    uint64_t kill_at;
    uint64_t give_up_at; /* 0: not killing yet */
    uint64_t pause;
    void (*done)(void *arg, unsigned left);
    void *arg;
};

static bool is_alive(const struct proc *p)
{
    return p->state != 'Z' && p->state != 'X';
}

static int by_pid(const void *key, const void *item)
{
    pid_t a = *(const pid_t *)key, b = ((const struct proc *)item)->pid;
    return a < b ? -1 : a > b;
}

static const struct proc *find_pid(const struct proc_list *list, pid_t pid)
{
    return list->count ? bsearch(&pid, list->p, list->count, sizeof *list->p, by_pid) : NULL;
}

/*
 * The number of a reaped main process may be taken again, but only once no process is left in its
 * session and group. So when a process with that number exists, the session is somebody else's.
 */
static pid_t usable_session(const struct proc_list *list, pid_t main_pid, bool main_gone)
{
    return main_gone && find_pid(list, main_pid) ? 0 : main_pid;
}

static void mark_direct(struct proc_list *list, const char *run_id, pid_t session)
{
    char id[WIRE_RUN_ID_MAX + 1];
    for (size_t i = 0; i < list->count; i++) {
        struct proc *p = &list->p[i];
        bool near = session && (p->pid == session || p->group == session || p->session == session);
        p->mine =
            near || (is_alive(p) && proc_run_id(p->pid, id, sizeof id) && !strcmp(id, run_id));
    }
}

static bool session_is_mine(const struct proc_list *list, pid_t session)
{
    for (size_t i = 0; session && i < list->count; i++)
        if (list->p[i].mine && list->p[i].session == session)
            return true;
    return false;
}

/* One pass over the list; true when it marked something. */
static bool mark_relatives(struct proc_list *list)
{
    bool grew = false;
    for (size_t i = 0; i < list->count; i++) {
        struct proc *p = &list->p[i];
        const struct proc *parent = p->mine ? NULL : find_pid(list, p->parent);
        if (!p->mine && ((parent && parent->mine) || session_is_mine(list, p->session)))
            grew = p->mine = true;
    }
    return grew;
}

void tree_find(const char *run_id, pid_t main_pid, bool main_gone, struct proc_list *list)
{
    if (proc_all(list))
        return;
    mark_direct(list, run_id, usable_session(list, main_pid, main_gone));
    while (mark_relatives(list))
        continue;
}

static void signal_one(pid_t pid, int sig)
{
    if (!sig)
        return;
    (void)kill(pid, sig);
    /* A stopped process cannot act on a signal before it goes on. */
    if (sig != SIGSTOP && sig != SIGKILL)
        (void)kill(pid, SIGCONT);
}

/* Signal the tree; returns how many were alive, and in *fresh how many of them not yet stopped. */
static unsigned tree_signal(const struct hunt *h, int sig, unsigned *fresh)
{
    struct proc_list list = {0};
    unsigned n = 0;
    *fresh = 0;
    tree_find(h->target.run_id, h->target.main_pid, h->target.main_gone, &list);
    for (size_t i = 0; i < list.count; i++) {
        const struct proc *p = &list.p[i];
        if (!p->mine || !is_alive(p))
            continue;
        n++;
        *fresh += p->state != 'T';
        signal_one(p->pid, sig);
    }
    proc_list_release(&list);
    return n;
}

/* Without /proc the process group is all that can be reached. */
static void group_signal(const struct hunt *h, int sig)
{
    if (h->target.main_pid && !h->target.main_gone)
        signal_one(-h->target.main_pid, sig);
}

/* Stopped processes cannot fork, so after some rounds nothing is left that escapes the KILL. */
static unsigned tree_kill(const struct hunt *h)
{
    unsigned fresh;
    for (int i = 0; i < KILL_ROUNDS; i++)
        if (!tree_signal(h, SIGSTOP, &fresh) || !fresh)
            break;
    group_signal(h, SIGKILL);
    return tree_signal(h, SIGKILL, &fresh);
}

static void hunt_end(struct hunt *h, unsigned left)
{
    timer_stop(&h->timer);
    if (h->done)
        h->done(h->arg, left);
    free(h);
}

static bool hunt_is_over(const struct hunt *h, unsigned alive, uint64_t now)
{
    bool main_alive = h->target.main_pid && !h->target.main_gone;
    return !main_alive && (!alive || (h->give_up_at && now >= h->give_up_at));
}

/* One look: nothing left ends the hunt, else the next look is planned. */
static void hunt_look(struct timer *t)
{
    struct hunt *h = CONTAINER_OF(t, struct hunt, timer);
    uint64_t now = loop_now();
    bool killing = now >= h->kill_at;
    unsigned fresh;
    if (killing && !h->give_up_at) {
        h->give_up_at = now + GIVE_UP_US;
        h->pause = FIRST_LOOK_US;
    }
    unsigned alive = killing ? tree_kill(h) : tree_signal(h, 0, &fresh);
    if (hunt_is_over(h, alive, now)) {
        hunt_end(h, alive);
        return;
    }
    uint64_t next = now + h->pause;
    h->pause = h->pause * 2 > LAST_LOOK_US ? LAST_LOOK_US : h->pause * 2;
    timer_set(&h->timer, next > h->kill_at && !killing ? h->kill_at : next);
}

struct hunt *hunt_start(const struct hunt_target *target, int sig, uint64_t grace_ms,
                        void (*done)(void *arg, unsigned left), void *arg)
{
    struct hunt *h = calloc(1, sizeof *h);
    if (!h)
        return NULL;
    h->target = *target;
    h->timer.fire = hunt_look;
    h->done = done;
    h->arg = arg;
    h->kill_at = UINT64_MAX;
    hunt_hasten(h, sig, grace_ms);
    return h;
}

void hunt_hasten(struct hunt *h, int sig, uint64_t grace_ms)
{
    uint64_t now = loop_now();
    uint64_t grace = sig == SIGKILL ? 0 : grace_ms > GRACE_MAX_MS ? GRACE_MAX_MS : grace_ms;
    unsigned fresh;
    if (now + grace * 1000 < h->kill_at)
        h->kill_at = now + grace * 1000;
    if (sig != h->sig && sig != SIGKILL) {
        group_signal(h, sig);
        (void)tree_signal(h, sig, &fresh);
    }
    h->sig = sig;
    h->pause = FIRST_LOOK_US;
    timer_set(&h->timer, grace ? now + h->pause : now);
}

void hunt_main_gone(struct hunt *h)
{
    h->target.main_gone = true;
    timer_set(&h->timer, loop_now());
}

void hunt_cancel(struct hunt *h)
{
    h->done = NULL;
}
