/*
 * proc.h - what /proc tells about processes of this sandbox.
 *
 * Purpose:   parents, groups, sessions, and which run a process belongs to: every process of a
 *            run starts with SMCP_RUN_ID=<id> in its environment and hands it to its children.
 * Ownership: proc_init() opens /proc and keeps it. Lists are the caller's, proc_list_release().
 * Errors:    a process may vanish at any moment; that reads as "not there" and is never an error.
 *            Without /proc everything reads as empty.
 * Limits:    of an environment the first PROC_ENV_MAX bytes are searched.
 */
#ifndef AGENT_PROC_H
#define AGENT_PROC_H

#include "images/agent/base.h"

#include <sys/types.h>

#define PROC_ENV_MAX (1u << 20)

struct proc {
    pid_t pid, parent, group, session;
    char state; /* as in /proc/PID/stat: Z is a zombie */
    bool mine;  /* for the caller's use */
};

struct proc_list {
    struct proc *p;
    size_t count, cap;
};

void proc_init(void);

bool proc_read(pid_t pid, struct proc *ret);

/* The run id in a process's environment; false when there is none or it cannot be read. */
bool proc_run_id(pid_t pid, char *out, size_t size);

/* Every process but the agent, sorted by pid; children of one process. -1: /proc lacks that. */
int proc_all(struct proc_list *list);
int proc_children(pid_t pid, struct proc_list *list);

/* Only the pids of the agent's own children: one read of an open file. */
int proc_own_children(pid_t *pids, size_t max);

void proc_list_release(struct proc_list *list);

#endif
