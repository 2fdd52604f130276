/*
 * path.h - names of files in the sandbox.
 *
 * View:   a path means what it means to a command in the sandbox; symbolic links resolve as the
 *         kernel resolves them here. This is no boundary: the agent is inside.
 * Safety: nothing is opened for reading or writing before it is known to be a regular file, so a
 *         FIFO or device can neither hang the agent nor notice it.
 * Errors: -1 with errno.
 */
#ifndef AGENT_PATH_H
#define AGENT_PATH_H

#include "images/agent/fields.h"

#include <limits.h>
#include <sys/stat.h>

/* WT_PATH of a request, relative ones below AGENT_WORKSPACE. */
int path_of_request(const struct fields *f, char out[PATH_MAX]);

/* Follow links at the last component, also to a target that does not exist yet. In place. */
int path_follow(char path[PATH_MAX]);

/* Create the directories above the last component. */
int path_make_parents(char path[PATH_MAX]);

/* "a FIFO", "a directory": for texts. The letter: for WT_FTYPE. */
const char *path_kind(mode_t mode);
char path_letter(mode_t mode);

/* Open what an O_PATH descriptor stands for. */
int path_reopen(int fd, int flags);

/* The name of an open file; "" when unknown. */
void path_of_fd(int fd, char out[PATH_MAX]);

#endif
