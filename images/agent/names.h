/*
 * names.h - the next few names of a directory in bytewise order.
 *
 * Purpose:   page through a directory of any size with bounded memory: one scan keeps the smallest
 *            names after a given one; when those are used up, the directory is scanned again.
 * Ownership: names own their memory, not the descriptor. A zeroed struct is ready for names_scan().
 * Limits:    `most` names are kept, at most twice as many held during the scan.
 * Errors:    no memory or an unreadable directory reads as the end of the directory.
 */
#ifndef AGENT_NAMES_H
#define AGENT_NAMES_H

#include "images/agent/queue.h"

#include <limits.h>

struct names {
    struct queue text; /* the names, each with its NUL */
    uint32_t *at;      /* where each begins, sorted after the scan */
    size_t count, most;
    bool more; /* names after the kept ones exist */
};

/* Start a scan for names after `after` ("": all). */
int names_begin(struct names *n, int dir, size_t most);

/* One piece of it: 1 to call again, 0 when the names are complete. */
int names_scan(struct names *n, int dir, const char *after);

const char *names_get(const struct names *n, size_t i);
void names_release(struct names *n);

#endif
