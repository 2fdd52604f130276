/*
 * run_internal.h - between the files of a run.
 *
 *   run.c      records, waiting, ending, what the sandbox reports
 *   run_io.c   frames to and from the agent, output, log
 *   result.c   what the caller is told
 *   run_requests.c  the request kinds exec, run, wait, stop, cancel
 */
#ifndef RUNNER_RUN_INTERNAL_H
#define RUNNER_RUN_INTERNAL_H

#include "jobs-runner/run.h"

struct sandbox *run_sandbox(struct run *run);

/* Send WIRE_RUN and stdin. -1 with `e` set: the run cannot be; without: the link broke. */
int run_send(struct run *run, struct link *link, struct err *e) _check_;
void run_frame(void *arg, const struct wire_header *h, const unsigned char *payload, size_t n);

/* Tell the agent to end all of it, as it was asked for before. */
void run_send_stop(struct run *run, struct link *link);

/* Make the log (if it is not there) and write what is pending. */
void run_spill(struct run *run);
void run_last_line(const struct run *run, struct buf *out);
void run_answer_started(struct run *run);

/* Each ends the run: it is freed, all waiters are answered. */
void run_end(struct run *run, const char *status);
void run_fail(struct run *run, const struct err *e);

#endif
