/*
 * housekeeper.h - the one other thread: what has to block.
 *
 * It copies the WAL into the database (fsync), and deletes what lies in DATA_DIR/.trash and
 * RUN_DIR/sb/.trash. It has a database connection of its own, and shares nothing with the loop but
 * counters and an eventfd.
 */
#ifndef RUNNER_HOUSEKEEPER_H
#define RUNNER_HOUSEKEEPER_H

#include "jobs-runner/runner.h"

int housekeeper_new(struct runner *r, struct housekeeper **ret, struct err *e) _check_;
struct housekeeper *housekeeper_free(struct housekeeper *h); /* waits for the thread */

/* n commits were made; after HOUSEKEEPER_COMMITS of them the thread checkpoints. */
#define HOUSEKEEPER_COMMITS 1000
void housekeeper_count(struct housekeeper *h, unsigned n);

/* Something was put into the trash, or the WAL should be copied now. */
void housekeeper_wake(struct housekeeper *h);

/*
 * Move DATA_DIR/<name> into the trash: gone at once, deleted in the background. Links are never
 * followed. 0 moved, 1 there was nothing, -1 error.
 */
int housekeeper_discard(struct runner *r, const char *name, struct err *e) _check_;

/* The same with RUN_DIR/sb/<name>, in which the sandbox may have left anything. */
int housekeeper_discard_sockets(struct runner *r, const char *name, struct err *e) _check_;

/* Delete everything in this directory (its trash), without recursion and without following links.
 */
void trash_empty(int dir);

#endif
