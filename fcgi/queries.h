/* queries.h - every SQL statement of sandbox-mcp; prepared when the database is opened. */
#ifndef SMCP_FCGI_QUERIES_H
#define SMCP_FCGI_QUERIES_H

#include "common/db.h"

enum query {
    Q_PING,             /* -> 1 */
    Q_REQUEST_ADD,      /* kind, args, reply, created_at, deadline */
    Q_REQUEST_READ,     /* id -> state, ok, result, progress, run_id */
    Q_REQUEST_DELETE,   /* id */
    Q_REQUEST_WITHDRAW, /* id: only while nobody has taken it */
    Q_SANDBOXES,        /* -> see tool_sandbox.c */
    Q_SANDBOX,          /* name -> state, last_used */
    Q_SANDBOX_TOUCH,    /* last_used, name */
    Q_RUN,              /* id -> see tool_jobs.c */
    Q_COUNT
};

extern const struct db_query queries[Q_COUNT];

#endif
