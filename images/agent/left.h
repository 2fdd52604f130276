/*
 * left.h - processes that outlive their run.
 *
 * Purpose:   the reply to a run says how many of its processes still live. When a run's main
 *            process dies its children become children of the agent, so only new children of the
 *            agent have to be looked at; those seen before are remembered with their run.
 * Cost:      one kill(-1, 0) when nothing else is alive, one pread when nothing is new.
 * Ownership: the module keeps its own table; left_reaped() removes from it.
 */
#ifndef AGENT_LEFT_H
#define AGENT_LEFT_H

#include "images/agent/base.h"

#include <sys/types.h>

/*
 * Living processes of a run whose main process has been reaped, when left_alone() is not true.
 * is_main tells the main processes of runs that go on.
 */
unsigned left_count(const char *run_id, pid_t main_pid, bool (*is_main)(pid_t));

/* This child of the agent was reaped; false when it was not in the table. */
bool left_reaped(pid_t pid);

/* True when surely no process but the agent is alive. */
bool left_alone(void);

#endif
