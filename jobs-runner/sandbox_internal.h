/*
 * sandbox_internal.h - between the files of the sandbox state machine.
 *
 *   sandbox.c        the list, the table of states and events, who waits
 *   sandbox_docker.c the steps that Docker takes; each ends in one event
 *   sandbox_agent.c  connecting to the agent, and losing it
 *   container.c      what a container is made with
 */
#ifndef RUNNER_SANDBOX_INTERNAL_H
#define RUNNER_SANDBOX_INTERNAL_H

#include "jobs-runner/docker.h"
#include "jobs-runner/sandbox.h"

enum sandbox_event {
    EV_WORK,    /* somebody needs it */
    EV_MISSING, /* Docker has no such container */
    EV_EXITED,  /* it exists and does not run */
    EV_PAUSED,
    EV_RUNNING,
    EV_IMAGE_MISSING,
    EV_PULLED,
    EV_CREATED,
    EV_STARTED,
    EV_UNPAUSED,
    EV_CONNECTED,
    EV_LOST, /* agent or container went away */
    EV_STOP,
    EV_STOPPED,
    EV_REMOVED,
    EV_FAILED,
    EV_COUNT
};

/* Feed an event. `e` is what failed (EV_FAILED, EV_LOST), else NULL. */
void sandbox_event(struct sandbox *sb, enum sandbox_event ev, const struct err *e);

void sandbox_look(struct sandbox *sb);
void sandbox_pull(struct sandbox *sb);
void sandbox_create(struct sandbox *sb);
void sandbox_start(struct sandbox *sb);
void sandbox_unpause(struct sandbox *sb);
void sandbox_halt(struct sandbox *sb);
void sandbox_remove(struct sandbox *sb);
void sandbox_check_paused(struct sandbox *sb);

void sandbox_connect(struct sandbox *sb);
void sandbox_disconnect(struct sandbox *sb);

void sandbox_set_heal(struct sandbox *sb, enum sandbox_heal heal, const char *fmt, ...)
    _printf_(3, 4);
void sandbox_tell_progress(struct sandbox *sb, const char *text);
int sandbox_store_state(struct sandbox *sb, const char *state, struct err *e) _check_;

/* The body of POST /containers/create. */
void container_body(const struct sandbox *sb, struct buf *out);
void container_name(const struct sandbox *sb, struct buf *out);

/* Remove containers of this instance that no sandbox has; note which are there. */
void containers_reconcile(struct runner *r);

#endif
