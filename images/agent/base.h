/*
 * base.h - what every file of sandbox-agent includes first.
 *
 * Purpose:  feature macros and three tiny helpers. Nothing here has state.
 * Program:  the agent is one thread around one epoll loop. Each module keeps its own state in
 *           static variables, so a function says in its name which module it belongs to.
 * Memory:   small things come from malloc, anything of 4 KiB or more from queue.c or ring.c, which
 *           use mmap and give it back. An idle agent holds a few hundred KiB.
 */
#ifndef AGENT_BASE_H
#define AGENT_BASE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef SMCP_VERSION
#define AGENT_VERSION SMCP_VERSION
#else
#define AGENT_VERSION "unknown"
#endif
#define AGENT_WORKSPACE "/workspace" /* what a relative path is relative to */

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* The structure around a member; the detour over void keeps -Wcast-align quiet. */
#define CONTAINER_OF(p, type, member) ((type *)(void *)((char *)(p)-offsetof(type, member)))

static inline size_t min_size(size_t a, size_t b)
{
    return a < b ? a : b;
}

#endif
