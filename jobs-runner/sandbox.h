/*
 * sandbox.h - the life of a sandbox: one state machine each, so that any number of concurrent
 * calls on a name make exactly one container.
 *
 * Whoever needs a sandbox calls sandbox_want and is called back when it is ready, or when that
 * failed. What is found out of step with Docker (removed, stopped, paused by somebody) is mended on
 * the way, and the callback says so. Every change is in the database before its side effect.
 * Ownership: sandboxes belong to the runner's list and live until their row is deleted; a pointer
 *   is valid during a callback. Keep names, not pointers, across turns of the loop.
 */
#ifndef RUNNER_SANDBOX_H
#define RUNNER_SANDBOX_H

#include "jobs-runner/link.h"
#include "jobs-runner/runner.h"

enum sandbox_state {
    SB_UNKNOWN, /* not looked at yet, or found out of step: look before use */
    SB_LOOKING, /* asking Docker what there is */
    SB_PULLING, /* fetching the image */
    SB_CREATING,
    SB_STARTING,
    SB_UNPAUSING,
    SB_CONNECTING, /* started; waiting for the agent */
    SB_READY,
    SB_STOPPING,
    SB_STOPPED,
    SB_REMOVING,
    SB_STATE_COUNT
};

enum sandbox_heal { HEAL_NONE, HEAL_RECREATED, HEAL_RESTARTED, HEAL_UNPAUSED };

struct request;
struct sandbox_want;
struct link;
struct docker_call;

struct sandbox_spec {
    char image[256];
    double cpus;
    int64_t memory; /* bytes */
    int64_t pids;
    char network[64];
    char runtime[64];
    char *env;           /* JSON object of strings */
    int64_t ttl_seconds; /* 0: none */
};

struct sandbox {
    char name[64]; /* first: the index compares it */
    struct runner *r;
    struct sandbox *prev, *next;
    enum sandbox_state state;
    struct sandbox_spec spec;
    char container[80]; /* "" none */
    int64_t generation;
    int64_t created_at, last_used, expires_at; /* real ms; expires_at 0: never */
    int64_t used_us; /* monotonic: end of the last use; decides idleness */
    bool fresh;      /* has never been ready: not kept when that fails */
    bool removing;   /* recorded as being removed */
    bool stopped_by_us;
    bool delete_files;
    struct err *failure; /* why a fresh one is being removed again: its waiters hear this */
    struct sandbox_want *wants;
    struct request *destroyers; /* waiting for the removal, linked by `state` */
    struct docker_call *call;
    struct link *link;
    bool ready; /* the link has said hello */
    char boot[33];
    int pidfd;
    pid_t init;
    sd_event_source *pid_watch, *dir_watch, *timer;
    int name_tries;
    int stale_looks; /* since it was ready: Docker named an init process that had ended */
    int starts; /* since it was ready: a container that exits at once is not started for ever */
    bool pulled;
    enum sandbox_heal heal; /* not yet told */
    char heal_reason[160];
    char progress[PATH_MAX / 8];
    int64_t told_us;   /* monotonic: when progress of a pull was told last */
    size_t unanswered; /* runs sent and not yet confirmed by the agent */
    int64_t sent_at;   /* monotonic us of the oldest of them, roughly */
};

struct sandbox_ready {
    bool created; /* by this want */
    enum sandbox_heal heal;
    const char *reason;
};

/* `e` is NULL when the sandbox is ready. */
typedef void sandbox_done(void *arg, struct sandbox *sb, const struct sandbox_ready *how,
                          const struct err *e);

struct sandbox *sandbox_find(struct runner *r, const char *name);

/* A new sandbox: its row, not yet a container. ERR_LIMIT at the cap. */
int sandbox_new(struct runner *r, const char *name, const struct sandbox_spec *spec,
                struct sandbox **ret, struct err *e) _check_;

/* The same with the settings' defaults: for a use of a name that nobody has created. */
int sandbox_new_default(struct runner *r, const char *name, struct sandbox **ret,
                        struct err *e) _check_;

/* The transaction in which new ones were recorded was rolled back, and nobody has used them yet. */
void sandboxes_forget_unrecorded(struct runner *r);

/* Fill with the settings' defaults; the caller frees spec->env. */
void sandbox_spec_default(const struct runner *r, struct sandbox_spec *spec);

/* Call back when ready. `q` (may be NULL) is told about progress. The handle ends with the call,
 * and stays the same when a sandbox of the same name takes over from one that is removed. */
struct sandbox_want *sandbox_need(struct sandbox *sb, bool created, struct request *q,
                                  sandbox_done *done, void *arg);
void sandbox_unneed(struct sandbox *sb, struct sandbox_want *w);
void sandbox_need_quietly(struct sandbox_want *w); /* its request was answered: no more progress */

/* Remove container and row, end its runs, then answer `q`. */
void sandbox_destroy(struct sandbox *sb, bool delete_files, struct request *q);

/* Stop an idle one (its files stay). */
void sandbox_stop(struct sandbox *sb);

void sandbox_touch(struct sandbox *sb);

/* The agent of this link may forget the run of that stream. */
void sandbox_forget_run(struct runner *r, const char *name, uint64_t link, uint32_t stream);

/* A run was sent, and (later) the agent answered: a silent agent is looked at after a second. */
void sandbox_sent(struct sandbox *sb);
void sandbox_heard(struct sandbox *sb);

/* At start: the rows, then Docker's list (strangers of ours are removed, lost ones noted). */
int sandboxes_load(struct runner *r, struct err *e) _check_;
void sandboxes_free(struct runner *r);

const char *sandbox_state_name(const struct sandbox *sb); /* as list_sandboxes shows it */

#endif
