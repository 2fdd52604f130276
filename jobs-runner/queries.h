/* queries.h - every SQL statement of the runner, by name (queries.c has the texts). */
#ifndef RUNNER_QUERIES_H
#define RUNNER_QUERIES_H

#include "common/db.h"

enum query {
    Q_REQUEST_QUEUED,
    Q_REQUEST_TAKEN,
    Q_REQUEST_TAKE,
    Q_REQUEST_SET_BOOT,
    Q_REQUEST_ANSWER,
    Q_REQUEST_PROGRESS,
    Q_REQUEST_PURGE,
    Q_RUN_INSERT,
    Q_RUN_BEGIN,
    Q_RUN_JOB,
    Q_RUN_INSERT_ENDED,
    Q_RUN_END,
    Q_RUN_BY_ID,
    Q_RUN_BY_CALLER,
    Q_RUN_RECOVER,
    Q_RUN_LIVE,
    Q_RUN_RESULT,
    Q_RUN_FREE_ID,
    Q_RUN_FREE_IDS,
    Q_RUN_LAST_USE,
    Q_RUN_OLD,
    Q_RUN_DELETE,
    Q_SANDBOX_ALL,
    Q_SANDBOX_INSERT,
    Q_SANDBOX_STATE,
    Q_SANDBOX_CONTAINER,
    Q_SANDBOX_TOUCH,
    Q_SANDBOX_LAST_USED,
    Q_SANDBOX_DELETE,
    Q_COUNT
};

extern const struct db_query runner_queries[Q_COUNT];

#endif
