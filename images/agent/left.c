#include "images/agent/left.h"

#include "common/wire.h"
#include "images/agent/proc.h"
#include "images/agent/tree.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHILDREN_MAX 4096 /* children of the agent that are looked at */
#define DEPTH_MAX    64   /* generations below a leftover that are counted */

struct leftover {
    pid_t pid;
    uint32_t run; /* hash of the run id; 0: no run's */
};

static struct {
    struct leftover *p;
    size_t count, cap;
} left;

static uint32_t hash(const char *s)
{
    uint32_t h = 2166136261u;
    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 16777619u;
    return h ? h : 1;
}

static struct leftover *left_find(pid_t pid)
{
    for (size_t i = 0; i < left.count; i++)
        if (left.p[i].pid == pid)
            return &left.p[i];
    return NULL;
}

static void left_add(pid_t pid, uint32_t run)
{
    if (left.count == left.cap) {
        size_t cap = left.cap ? left.cap * 2 : 16;
        struct leftover *p = realloc(left.p, cap * sizeof *p);
        if (!p)
            return;
        left.p = p;
        left.cap = cap;
    }
    left.p[left.count++] = (struct leftover){pid, run};
}

bool left_reaped(pid_t pid)
{
    struct leftover *l = left_find(pid);
    if (!l)
        return false;
    *l = left.p[--left.count];
    return true;
}

bool left_alone(void)
{
    /* Only as PID 1 does -1 mean "everything in this sandbox". */
    return getpid() == 1 && kill(-1, 0) && errno == ESRCH;
}

/* Whose is a new child? Its session tells when it did not change it, else its environment. */
static uint32_t owner_of(const struct proc *p, const char *run_id, pid_t main_pid)
{
    char id[WIRE_RUN_ID_MAX + 1];
    if (p->session == main_pid || p->group == main_pid)
        return hash(run_id);
    return proc_run_id(p->pid, id, sizeof id) ? hash(id) : 0;
}

static unsigned count_below(pid_t pid, unsigned depth)
{
    struct proc_list list = {0};
    unsigned n = 0;
    if (depth < DEPTH_MAX && !proc_children(pid, &list))
        for (size_t i = 0; i < list.count; i++)
            if (list.p[i].state != 'Z')
                n += 1 + count_below(list.p[i].pid, depth + 1);
    proc_list_release(&list);
    return n;
}

static unsigned count_tree(const char *run_id, pid_t main_pid)
{
    struct proc_list list = {0};
    unsigned n = 0;
    tree_find(run_id, main_pid, true, &list);
    for (size_t i = 0; i < list.count; i++)
        n += list.p[i].mine && list.p[i].state != 'Z';
    proc_list_release(&list);
    return n;
}

static void learn_children(const pid_t *pids, int n, const char *run_id, pid_t main_pid,
                           bool (*is_main)(pid_t))
{
    struct proc p;
    for (int i = 0; i < n; i++)
        if (!is_main(pids[i]) && !left_find(pids[i]) && proc_read(pids[i], &p) && p.state != 'Z')
            left_add(p.pid, owner_of(&p, run_id, main_pid));
}

unsigned left_count(const char *run_id, pid_t main_pid, bool (*is_main)(pid_t))
{
    pid_t few[256], *many = NULL;
    int n = proc_own_children(few, ARRAY_LEN(few));
    if (n < 0)
        return count_tree(run_id, main_pid);
    if (n == (int)ARRAY_LEN(few) && (many = malloc(CHILDREN_MAX * sizeof *many)))
        n = proc_own_children(many, CHILDREN_MAX);
    learn_children(many ? many : few, n, run_id, main_pid, is_main);
    free(many);
    uint32_t run = hash(run_id);
    unsigned total = 0;
    for (size_t i = 0; i < left.count; i++)
        if (left.p[i].run == run)
            total += 1 + count_below(left.p[i].pid, 0);
    return total;
}
