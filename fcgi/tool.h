/*
 * tool.h - what a tool is, and one call of it.
 *
 * A handler gets validated arguments and does one of three things:
 *   return CALL_DONE    the result, one JSON object, is in call->out
 *   return CALL_FAILED  call->err says why
 *   return call_ask()   the runner is asked; `next` goes on when it has answered
 * `next` is a handler of the same kind, so a call may ask several times. Nothing here waits: the
 * face that drives the call does (drive.h, stdio.c).
 */
#ifndef SMCP_FCGI_TOOL_H
#define SMCP_FCGI_TOOL_H

#include "common/base.h"
#include "common/json.h"
#include "fcgi/app.h"
#include "fcgi/args.h"
#include "fcgi/runner.h"

#define CALL_RESULT_MAX (64u << 20)
#define ASK_FAST_MS     20000   /* file access, stop */
#define ASK_CREATE_MS   45000   /* a client gives up at about 60 s */
#define ASK_STREAM_MS   1800000 /* a pull that reports progress */

enum { CALL_FAILED = -1, CALL_DONE = 0, CALL_WAITS = 1 };

struct call;
typedef int call_step(struct call *c);

struct tool {
    const char *name;
    const char *title;
    const char *description;
    const char *input;  /* JSON Schema */
    const char *output; /* JSON Schema of the result, or NULL */
    unsigned toolset;
    unsigned hints;
    call_step *run;
};

/* Hints; they become the annotations. */
#define HINT_READONLY    1u
#define HINT_DESTRUCTIVE 2u
#define HINT_IDEMPOTENT  4u
#define HINT_OPENWORLD   8u
/* What closing the stream in the modern era does: stop the command. */
#define TOOL_CANCELS 16u
/* Reports progress when it is asked to. */
#define TOOL_PROGRESS 32u
/* The result is a JSON array of content blocks (images, audio), not structured content. */
#define TOOL_CONTENT 64u
/* What goes on as a job may be answered as a task (tasks.h). */
#define TOOL_TASK 128u

struct call {
    struct app *app;
    const struct tool *tool;
    struct args args;
    bool progress; /* somebody listens to progress, and waits as long as it takes */
    struct buf out;
    bool is_error; /* `out` is an error object that the runner made */
    struct err err;
    struct runner_request request;
    call_step *next;
    bool sandbox_created; /* write_text made it on the way */
};

void call_init(struct call *c, struct app *app, const struct tool *tool, struct args args);
void call_release(struct call *c);

/* Validate and run until the call is done or waits. Returns one of CALL_*. */
int call_start(struct call *c);

/* Go on after the runner's answer (call_ready). */
int call_resume(struct call *c);
bool call_ready(const struct call *c);

/* Ask the runner; args is a JSON object. Returns CALL_WAITS or CALL_FAILED. */
int call_ask(struct call *c, const char *kind, const struct buf *args, int64_t wait_ms,
             call_step *next);

/* A `next` that hands the runner's answer on as it is. */
int call_pass(struct call *c);

/* Name of the sandbox; NULL after filling in the error when it is no name. */
const char *call_sandbox(struct call *c);

/* The argument `env` as an object of strings, under the key "env"; nothing when it is absent. */
int call_write_env(struct call *c, struct jw *w) _check_;

/* Handlers, in tool_<subject>.c */
call_step tool_exec, tool_run_background, tool_get_job, tool_stop_job;
call_step tool_list_sandboxes, tool_create_sandbox, tool_destroy_sandbox;
call_step tool_list_files, tool_read_text, tool_write_text;

#endif
