/*
 * docker.h - the Docker Engine API over its unix socket, asynchronously (libcurl multi).
 *
 * The first call asks /_ping for the API version and all calls then speak that version; a lost
 * connection makes the next call ask again, so the engine may be upgraded under us.
 * Results: the callback runs once, from the loop, never from within docker_call. `status` is the
 *   HTTP status; 0 means that no answer came, and `e` says why. `body` is the whole answer (at
 *   most DOCKER_MAX_BODY bytes) and valid during the callback only.
 * Lines: for answers that are a stream of JSON lines (pull, build) `on_line` gets each line.
 * Ownership: the returned handle lives until its callback returned; docker_cancel drops it without
 *   calling back.
 */
#ifndef RUNNER_DOCKER_H
#define RUNNER_DOCKER_H

#include "jobs-runner/runner.h"

#define DOCKER_MAX_BODY    (4u << 20)
#define DOCKER_API_MINIMUM 41 /* 1.41: Debian 12 */

struct docker_call;

struct docker_reply {
    long status;
    const char *body;
    size_t len;
    const struct err *e; /* set when status is 0 */
};

typedef void docker_done(void *arg, const struct docker_reply *reply);
typedef void docker_line(void *arg, const char *line, size_t n);

struct docker_request {
    const char *method; /* "GET", "POST", "DELETE" */
    const char *path;   /* after the version: "/containers/json?all=1" */
    const char *body;   /* JSON, or NULL */
    int64_t timeout_ms; /* 0: 60 s */
    docker_done *done;
    docker_line *on_line; /* or NULL */
    void *arg;
};

int docker_new(struct runner *r, struct docker **ret, struct err *e) _check_;
struct docker *docker_free(struct docker *d);

struct docker_call *docker_start(struct docker *d, const struct docker_request *q);
void docker_cancel(struct docker_call *c);

/* Negotiated version, "1.41"; empty before the first answer. */
const char *docker_version(const struct docker *d);

/* Fill `e` from an answer that is not what was wanted: the engine's own message in one line. */
int docker_fail(struct err *e, const struct docker_reply *reply, const char *what);

/* Append `text` with everything percent-encoded that is not a letter, digit or one of -_.~ */
void docker_escape(struct buf *out, const char *text);

#endif
