/*
 * app.h - what one process of the responder has: settings, database, runner, tools.
 *
 * Made after fork, once a process. The database is opened on first need and again after a failure,
 * so that a worker outlives a database that is away for a while.
 */
#ifndef SMCP_FCGI_APP_H
#define SMCP_FCGI_APP_H

#include "common/base.h"
#include "common/db.h"
#include "common/err.h"
#include "common/settings.h"
#include "fcgi/oauth.h"
#include "fcgi/runner.h"

#define APP_HASH 32

struct app {
    const struct settings *settings;
    struct db db;
    struct runner runner;
    unsigned toolsets;                  /* bits of the tool sets that SMCP_TOOLSETS switches on */
    unsigned char token_hash[APP_HASH]; /* SHA-256 of the bearer token */
    struct oauth *oauth;                /* NULL: the bearer token alone */
    const char *env_file; /* for a runner that we start; NULL: the environment has it all */
    bool starts_runner;   /* stdio: start the runner when it is not there */
    int64_t health_us;    /* when health_text was made */
    int health_status;
    struct buf health_text;
};

/* Fails for unknown names in SMCP_TOOLSETS. The settings must outlive the app. */
int app_init(struct app *a, const struct settings *s, struct err *e) _check_;
void app_release(struct app *a);

/* The database and the runner's queue, opened if they are not. */
int app_open(struct app *a, struct err *e) _check_;

/* Start the jobs-runner beside this program and wait until it listens. Only for --stdio. */
int app_start_runner(struct app *a, struct err *e) _check_;

void app_sha256(const void *p, size_t n, unsigned char ret[APP_HASH]);

#endif
