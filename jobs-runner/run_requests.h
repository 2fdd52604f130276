/* run_requests.h - the request kinds that start, follow and end runs. See requests.c. */
#ifndef RUNNER_RUN_REQUESTS_H
#define RUNNER_RUN_REQUESTS_H

#include "jobs-runner/requests.h"

/* In the transaction that takes the request: record what it will start. */
int exec_prepare(struct request *q, struct err *e) _check_;
int job_prepare(struct request *q, struct err *e) _check_;

/* After the commit. */
void exec_start(struct request *q);
void job_start(struct request *q);
void wait_start(struct request *q);
void stop_start(struct request *q);
void cancel_start(struct request *q);

#endif
