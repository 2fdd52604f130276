/*
 * prefork.h - the parent of the FastCGI workers.
 *
 * Keeps SMCP_WORKERS_MIN workers; a worker that takes the last idle place tells the parent, which
 * starts more, up to SMCP_WORKERS_MAX; after a while without need it ends them again, one by one.
 * A worker that dies is replaced, with growing delay when it dies young. The parent opens neither
 * database nor connections and sleeps when nothing happens.
 * SIGTERM or SIGINT: workers finish what they have begun, at most PREFORK_GRACE_MS; a second
 * signal ends them at once. Workers get SIGTERM when the parent dies.
 */
#ifndef SMCP_FCGI_PREFORK_H
#define SMCP_FCGI_PREFORK_H

#include "common/err.h"
#include "common/settings.h"

#define PREFORK_GRACE_MS 30000

/* Serve on a listening socket until told to stop. Returns the exit status. */
int prefork_run(const struct settings *s, int listen_fd);

/* A listening unix socket at `path`, mode 0660, replacing a stale one; group may be NULL. */
int prefork_listen(const char *path, const char *group, struct err *e) _check_;

#endif
