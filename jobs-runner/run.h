/*
 * run.h - a run: one command in a sandbox. exec and jobs are the same thing.
 *
 * exec starts a run and waits; when the wait is over and the command is not, it goes on as a job.
 * Output goes into two captures (for the result) and, as soon as it is a job or more than
 * RUN_PENDING_MAX bytes, into a log file. The agent keeps what has not been stored there, so a
 * crash of the runner loses nothing: it attaches again where the log ends.
 * Life: queued (the sandbox is being made ready) -> sent -> running -> ended, when it is written
 *   by the outbox and freed. A run is never sent twice unless the same boot of the agent says that
 *   it does not know it.
 */
#ifndef RUNNER_RUN_H
#define RUNNER_RUN_H

#include "common/layout.h"
#include "common/runlog.h"
#include "jobs-runner/capture.h"
#include "jobs-runner/requests.h"
#include "jobs-runner/sandbox.h"

#define RUN_PENDING_MAX (48u << 10) /* bytes kept in memory before a log file is made */
#define RUN_ACK_STEP    (64u << 10)
#define RUN_MAX_LIVE    2000

enum run_state { RUN_QUEUED, RUN_SENT, RUN_RUNNING };

/* Who waits for what of a run. */
enum run_wait { WAIT_START, WAIT_RESULT, WAIT_STATUS, WAIT_STOP };

struct run_waiter {
    struct run_waiter *next;
    struct run *run;
    struct request *q;
    enum run_wait what;
    sd_event_source *timer, *ticker;
};

struct run {
    char id[32]; /* first: the index compares it */
    struct runner *r;
    struct run *prev, *next;
    char sandbox[64];
    char boot[33]; /* of the agent that it was sent to */
    enum run_state state;
    bool job;
    bool recorded;      /* it has a row in `runs`; else the request is its record */
    bool keep_result;   /* the caller chose an id: the whole result is stored */
    int64_t request;    /* id of the request that started it */
    int64_t generation; /* of the sandbox */
    char *command;      /* what the history keeps of it */
    struct json *args;  /* until the agent has started it */
    struct run_waiter *waiters;
    struct sandbox_want *want;
    uint64_t link;   /* serial of the link that `stream` belongs to */
    uint32_t stream; /* 0: not attached */
    struct capture out, err;
    struct buf pending; /* output that is in no log yet */
    struct runlog log;
    bool log_failed;
    bool merged; /* attached after a restart: the captures hold the log, both streams in one */
    uint64_t seen, acked;
    int64_t started_at; /* real ms */
    int64_t started_us; /* monotonic */
    int64_t timeout_ms;
    bool created; /* this run made the sandbox */
    enum sandbox_heal heal;
    char heal_reason[160];
    int stop_signal; /* all of it is to end; 0: nobody asked for that */
    int64_t stop_grace_ms;
    /* how it ended */
    const char *status;
    int exit_code; /* -1 none */
    int signal;
    bool timed_out, oom_killed;
    int64_t left_running;
    int64_t duration_us;
    char reason[200];
};

/* What an agent says about a run that it has. */
struct run_report {
    char id[32];
    uint32_t stream;
    uint64_t offset;
    bool running;
};

int runs_load(struct runner *r, struct err *e) _check_;
void runs_free(struct runner *r);
struct run *run_find(struct runner *r, const char *id);
bool runs_live_in(struct runner *r, const char *sandbox);
size_t runs_count_in(struct runner *r, const char *sandbox);

/* ERR_LIMIT when no more may be live. */
int runs_room(const struct runner *r, struct err *e) _check_;

/*
 * A new one, not yet started. What its request does not record is recorded here, inside the
 * transaction that takes the request: a job, and a run whose id the caller chose.
 */
int run_new(struct request *q, struct sandbox *sb, bool job, struct run **ret,
            struct err *e) _check_;
void run_begin(struct run *run, bool created);

/* What the history keeps of the command in a request's arguments; the caller frees it. */
char *run_kept_command(const struct json *args);

/* The same after a crash, from its request alone (which has run_id and boot). */
struct run *run_restore(struct request *q);
void run_discard(struct run *run);                     /* its record was not committed */
void run_abandon(struct run *run, const char *reason); /* ends as lost */

void run_wait(struct run *run, struct request *q, enum run_wait what, int64_t wait_ms);

/*
 * `tree`: all of it, ending in SIGKILL after grace_ms; else one signal to the process group. What
 * ends all of it is said again to an agent that could not be reached, once it can.
 */
void run_signal(struct run *run, int sig, bool tree, int64_t grace_ms, const char *reason);

/* From the sandbox: its link says hello, is gone, or the container is. */
void run_found(struct sandbox *sb, const struct run_report *st);
void runs_settled(struct sandbox *sb);
void runs_tell_heal(struct sandbox *sb); /* what is mended under running commands */
void runs_unlinked(struct sandbox *sb);
void runs_lost(struct sandbox *sb, const char *reason);

/* The result of the tool exec (result.c). `running`: it has not ended yet. */
void run_result(const struct run *run, bool running, struct buf *out);
void run_started_result(const struct run *run, struct buf *out);

#endif
