/*
 * worker.h - one FastCGI worker: accept, serve, repeat, until SIGTERM.
 *
 * SIGTERM is blocked except while waiting for a connection: a request that has begun is finished.
 * The callbacks tell whoever keeps count that a request begins or has ended.
 */
#ifndef SMCP_FCGI_WORKER_H
#define SMCP_FCGI_WORKER_H

#include "common/settings.h"

struct worker_hooks {
    void (*busy)(void *ctx);
    void (*idle)(void *ctx);
    void *ctx;
};

/* Serve on a listening, non-blocking socket. Returns the exit status. */
int worker_run(const struct settings *s, int listen_fd, const struct worker_hooks *hooks);

#endif
