/*
 * drain.h - pipes of runs that are over, still held by processes that are not.
 *
 * Purpose:   such a pipe is read and thrown away until its last writer is gone. Closing it would
 *            kill the leftover with SIGPIPE at its next word; not reading would stop it.
 * Ownership: drain_take() takes the descriptor out of the source.
 */
#ifndef AGENT_DRAIN_H
#define AGENT_DRAIN_H

#include "images/agent/loop.h"

void drain_take(struct source *from);

#endif
