/*
 * tree.h - find and end every process of a run.
 *
 * Tree:      the main process's group and session, every process that carries the run's id in its
 *            environment, and all descendants and session mates of those.
 * Ownership: a hunt is made by hunt_start() and frees itself after calling done(). hunt_cancel()
 *            takes done() away, for an owner that goes first.
 * Course:    the first signal (with CONT), a grace period that ends early when nothing is left,
 *            then STOP and KILL again and again until a scan finds nothing.
 * Limits:    what even KILL does not end (uninterruptible sleep) is given up after some seconds
 *            and reported as the number of processes left.
 */
#ifndef AGENT_TREE_H
#define AGENT_TREE_H

#include "images/agent/base.h"

#include "common/wire.h"
#include "images/agent/proc.h"

struct hunt;

/* All processes, those of the tree with `mine`. main_gone: main_pid has been reaped. */
void tree_find(const char *run_id, pid_t main_pid, bool main_gone, struct proc_list *list);

struct hunt_target {
    char run_id[WIRE_RUN_ID_MAX + 1];
    pid_t main_pid; /* 0: unknown, only the id counts */
    bool main_gone; /* it has been reaped; the hunt does not end before that */
};

/* NULL: no memory. done may be NULL. */
struct hunt *hunt_start(const struct hunt_target *target, int sig, uint64_t grace_ms,
                        void (*done)(void *arg, unsigned left), void *arg);

/* Asked again: the earlier end of the two grace periods counts. */
void hunt_hasten(struct hunt *h, int sig, uint64_t grace_ms);

void hunt_main_gone(struct hunt *h); /* the main process was reaped: look at once */
void hunt_cancel(struct hunt *h);

#endif
