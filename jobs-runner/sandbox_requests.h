/* sandbox_requests.h - the request kinds create, destroy and health. See requests.c. */
#ifndef RUNNER_SANDBOX_REQUESTS_H
#define RUNNER_SANDBOX_REQUESTS_H

#include "jobs-runner/requests.h"

int create_prepare(struct request *q, struct err *e) _check_;
void create_start(struct request *q);
void destroy_start(struct request *q);
void health_start(struct request *q);

#endif
