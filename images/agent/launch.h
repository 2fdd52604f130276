/*
 * launch.h - from a WIRE_RUN to a running process.
 *
 * Answers:  WIRE_FAILED with errno and a text for whatever keeps the command from running. A run
 *           id or stream the agent knows already is EEXIST: nothing ever runs twice.
 * Errors:   -1 only for a malformed frame; the connection is closed then.
 */
#ifndef AGENT_LAUNCH_H
#define AGENT_LAUNCH_H

#include "images/agent/run.h"

struct fields;

int launch_request(uint32_t stream, const unsigned char *payload, size_t n);

/* All of the run's stdin is there: start it. r may be freed. */
void launch_collected(struct run *r);

/* Collecting failed. Frees r. */
void launch_refused(struct run *r, int error, const char *text);

#endif
