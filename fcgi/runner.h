/*
 * runner.h - the responder's side of the request queue: submit, wait, collect.
 *
 * One `struct runner` per process, with one reply FIFO for its whole life. Several requests may be
 * in flight: each is a `struct runner_request` of its caller, linked in until it is finished.
 * Nothing here blocks: whoever waits polls the descriptors of runner_poll and then calls
 * runner_dispatch.
 *
 * Runner down: submitting fails at once (code "runner_down"). If it dies while a request is in
 * flight, the request stays: a new runner takes up what it finds, so waiting goes on until the
 * request's own deadline.
 * Rows: the caller of a request deletes its row, together with its next request, or by
 *   runner_tidy when there is none for a while.
 */
#ifndef SMCP_FCGI_RUNNER_H
#define SMCP_FCGI_RUNNER_H

#include "common/base.h"
#include "common/buf.h"
#include "common/db.h"
#include "common/err.h"
#include "common/layout.h"
#include "common/settings.h"

#include <poll.h>

#define RUNNER_RESULT_MAX (64u << 20)
#define RUNNER_POLL_FDS   2

enum reply {
    REPLY_PENDING,
    REPLY_OK,    /* result: JSON object */
    REPLY_ERROR, /* result: {"error","code","fix"} */
    REPLY_NONE   /* the deadline passed */
};

struct runner_request {
    int64_t id; /* row; 0: not submitted */
    int64_t deadline_us;
    enum reply reply;
    struct buf result;
    struct buf progress;       /* the newest progress object */
    bool progressed;           /* newer than what its caller has taken */
    char run_id[ULID_LEN + 1]; /* the run it has started, when known */
    struct runner_request *next;
};

struct runner {
    const struct settings *settings;
    struct db *db;
    char reply_name[64];
    int reply_fd;
    int bell_fd;
    bool down; /* seen without a reader */
    int64_t last_sweep_us;
    struct runner_request *flying;
    int64_t *done; /* rows to delete */
    size_t n_done, cap_done;
};

#define RUNNER_INIT                                                                                \
    {                                                                                              \
        .reply_fd = -1, .bell_fd = -1                                                              \
    }

/* Make the reply FIFO. The settings and the database must outlive the runner. */
int runner_open(struct runner *r, const struct settings *s, struct db *db, struct err *e) _check_;
void runner_close(struct runner *r);

void runner_request_init(struct runner_request *q);
void runner_request_release(struct runner *r, struct runner_request *q);

/* Its caller has taken the answer: it keeps nobody from sleeping any more. */
void runner_taken(struct runner *r, struct runner_request *q);

/* Queue one request; it must stay at its place until released. */
int runner_submit(struct runner *r, struct runner_request *q, const char *kind, const char *args,
                  int64_t wait_ms, struct err *e) _check_;

/* Is somebody listening to the doorbell? */
bool runner_alive(struct runner *r);

/* Descriptors to poll (at most RUNNER_POLL_FDS); returns how many. */
size_t runner_poll(struct runner *r, struct pollfd *fds);

/* Milliseconds until something has to be looked at without a wake-up. */
int runner_timeout(const struct runner *r, int64_t now_us);

/* Take up what has been rung and what is late; requests change their `reply` and `progress`. */
void runner_dispatch(struct runner *r);

/* Delete the rows that are done with. */
void runner_tidy(struct runner *r);
bool runner_untidy(const struct runner *r); /* there is something for runner_tidy */

/* The error for a request that ended in REPLY_NONE. Returns -1. */
int runner_no_reply(struct runner *r, const struct runner_request *q, struct err *e);

/* Remove the reply FIFOs that a dead process left behind. */
void runner_clean(const struct settings *s, pid_t pid);

#endif
