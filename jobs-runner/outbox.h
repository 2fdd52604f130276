/*
 * outbox.h - what has to be committed before callers hear of it.
 *
 * Ends of runs and answers to requests are collected during one turn of the loop and written in
 * one transaction; then the callers' FIFOs are rung, and the agents may forget the runs. So a
 * burst of answers costs one commit, and an answer that was heard is always in the database.
 * The row that a plain exec gets for the history is written a little after its answer, when the
 * runner has nothing better to do, so that nobody waits for it. Until then the agent keeps the run
 * and the answered request is the record, from which the next runner writes the row
 * (Q_RUN_RECOVER). When the commit fails (disk full) all of it is kept and tried again after a
 * second.
 */
#ifndef RUNNER_OUTBOX_H
#define RUNNER_OUTBOX_H

#include "jobs-runner/runner.h"

struct outbox_run_end {
    char id[32];
    const char *status; /* static string */
    int exit_code;      /* -1: none */
    int signal;         /* 0: none */
    bool oom_killed;
    int64_t left_running;
    char *reason; /* heap or NULL; taken over */
    int64_t duration_us;
    bool log;
    char *result; /* heap or NULL; taken over */
    char sandbox[64];
    char *command; /* heap: the run has no row yet and gets one now; NULL: its row is updated */
    int64_t generation, started_at, timeout_ms; /* for that row */
    uint64_t link;   /* connection (link_serial) to the agent that may forget the run */
    uint32_t stream; /* its number there; 0: none */
};

int outbox_new(struct runner *r, struct outbox **ret, struct err *e) _check_;
struct outbox *outbox_free(struct outbox *o);

void outbox_run_end(struct outbox *o, const struct outbox_run_end *end);

/* `result` is JSON text from the heap, taken over. `reply` is the caller's FIFO name. */
void outbox_answer(struct outbox *o, int64_t request, const char *reply, bool ok, char *result);

/* Wake a caller: the row of its request has changed. One that is gone costs nothing. */
void outbox_ring(struct outbox *o, const char *reply, int64_t request);

/* Commands were just sent to agents: the time until they end is free for what can wait. */
void outbox_spare_moment(struct outbox *o);

/* Write now what is waiting (also at the end of the program). */
void outbox_flush(struct outbox *o);

#endif
