/*
 * pty.h - a terminal for a run.
 *
 * Ownership: pty_open() gives three descriptors to the caller: ours for reading and for writing
 *            (non-blocking), and the command's side. All are close-on-exec.
 * Errors:    -1 with errno.
 */
#ifndef AGENT_PTY_H
#define AGENT_PTY_H

#include "images/agent/base.h"

int pty_open(int *reader, int *writer, int *command);
int pty_resize(int fd, uint64_t rows, uint64_t cols); /* 0 rows: 24, 0 columns: 80 */

#endif
