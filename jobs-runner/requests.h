/*
 * requests.h - what the responder asks: taking rows, one table row per kind, answering.
 *
 * A request lives from the moment it is taken until it is answered; answering frees it. The row
 * in the database is the truth: after a crash the taken ones are taken up again, each as its kind
 * says (requests.c, `after_crash`).
 */
#ifndef RUNNER_REQUESTS_H
#define RUNNER_REQUESTS_H

#include "jobs-runner/runner.h"

struct request_kind;

struct request {
    struct runner *r;
    int64_t id;
    const struct request_kind *kind;
    struct json *args;
    char reply[64];
    char run_id[32];              /* "" until it is decided which run it starts or follows */
    char boot[33];                /* of the agent that the run is going to, "" when not known yet */
    int64_t created_at, deadline; /* real ms */
    bool resumed;                 /* taken up again after a crash */
    void *state;                  /* belongs to the kind's handler */
};

/* Open the doorbell, take up what a crash left, and listen. */
int requests_start(struct runner *r, struct err *e) _check_;
void requests_stop(struct runner *r);

/* `result` is a JSON object. Each frees the request. */
void request_answer(struct request *q, struct buf *result);
void request_fail(struct request *q, const struct err *e);

/* Tell the waiting caller how far it is; at most PROGRESS_MAX bytes of message are kept. */
#define PROGRESS_MAX 400
void request_progress(struct request *q, const char *message, size_t n);

#endif
