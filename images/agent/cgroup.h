/*
 * cgroup.h - the counters of the sandbox's own control group, version 1 and 2.
 *
 * Ownership: descriptors are opened once by cgroup_init() and kept.
 * Errors:    where a file is missing (no such controller, not in a container) the counters are
 *            simply absent: 0 or false.
 */
#ifndef AGENT_CGROUP_H
#define AGENT_CGROUP_H

#include "images/agent/base.h"

void cgroup_init(void);

/* Asks the kernel how many processes it has killed for want of memory. */
uint64_t cgroup_oom_kills(void);

/* The last answer, without asking. */
uint64_t cgroup_oom_seen(void);

/* Processes now and at most; false when there is no limit to tell about. */
bool cgroup_pids(uint64_t *now, uint64_t *max);

#endif
