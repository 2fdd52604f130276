/*
 * file_requests.h - files that only the sandbox itself can resolve: the agent reads, writes and
 * lists them. The kinds file_read, file_write, file_list. See requests.c.
 */
#ifndef RUNNER_FILE_REQUESTS_H
#define RUNNER_FILE_REQUESTS_H

#include "jobs-runner/requests.h"

void file_read_start(struct request *q);
void file_write_start(struct request *q);
void file_list_start(struct request *q);

#endif
