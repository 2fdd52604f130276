/*
 * spawn.h - start one process.
 *
 * Purpose:   clone with shared memory (as vfork does), a session of its own, standard
 *            descriptors, directory, exec. Used by runs and, without pipes, by the benchmark.
 * Ownership: the caller keeps everything it passes in, also the descriptors, which must be above 3
 *            and close-on-exec. Descriptor 3 of the agent is /dev/null (see spawn_init), so that
 *            number is free to be used for a script in the child.
 * Signals:   the child starts with an empty mask. The agent installs no handlers and ignores
 *            nothing (it blocks instead), so the dispositions are the default ones.
 * Errors:    spawn_start() returns the pid, or -1 with `step` and `error` set. A child that failed
 *            to exec is reaped by the caller's usual reaping.
 */
#ifndef AGENT_SPAWN_H
#define AGENT_SPAWN_H

#include "images/agent/base.h"

#include <sys/types.h>

#define SPAWN_NULL      3 /* descriptor of /dev/null in the agent */
#define SPAWN_SCRIPT_FD 3 /* descriptor of a script in the child */

enum spawn_step { SPAWN_CLONE, SPAWN_STDIO, SPAWN_TTY, SPAWN_CHDIR, SPAWN_EXEC };

struct spawn {
    char *const *argv;
    char *const *envp;
    char **shell_argv;  /* one slot to fill, then argv again: to run a script without #!; or NULL */
    const char *file;   /* path of the program, or a name to look for in `search` */
    const char *search; /* a PATH; NULL: `file` is a path */
    const char *cwd;    /* NULL: stay */
    int in, out, err;
    int script; /* -1: none */
    bool tty;   /* `in` becomes the controlling terminal */
    enum spawn_step step;
    int error;
};

/* Make descriptors 0 to 3 /dev/null where they are not open, 3 always; block all signals. */
int spawn_init(void);

pid_t spawn_start(struct spawn *s);

#endif
