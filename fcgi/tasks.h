/*
 * tasks.h - the extension io.modelcontextprotocol/tasks, on top of jobs.
 *
 * A task is a job: same id, same record. Only a request whose own capabilities declare the
 * extension gets one: run_background always, exec when its command goes on as a job.
 *   job running -> working; finished, timeout -> completed (the result is what get_job shows);
 *   stopped -> cancelled; lost -> failed.
 */
#ifndef SMCP_FCGI_TASKS_H
#define SMCP_FCGI_TASKS_H

#include "fcgi/rpc.h"

#define TASKS_EXTENSION "io.modelcontextprotocol/tasks"

/* The tool call of `op` is done: if its answer is a task, write it. False: it is an ordinary one.
 */
bool tasks_take(struct op *op);

/* Methods. */
int tasks_get(struct op *op);
int tasks_cancel(struct op *op);
int tasks_update(struct op *op);

#endif
