/*
 * run.h - one command in the sandbox, from WIRE_RUN to WIRE_DONE.
 *
 * Life:      COLLECTING (its stdin is still arriving), LIVE (its process exists), DRAINING (the
 *            process was reaped, the last output waits for room), ENDED (the exit can be told).
 *            A run is forgotten at WIRE_DONE, or when it never started.
 * Ownership: run.c owns the structures. The other run_*.c files work on the parts named after
 *            them. Nobody keeps a pointer to a run over a turn, but its own sources and timers.
 * No runner: a run goes on; its output is kept up to the window, then its process waits.
 */
#ifndef AGENT_RUN_H
#define AGENT_RUN_H

#include "images/agent/base.h"

#include "common/wire.h"
#include "images/agent/loop.h"
#include "images/agent/queue.h"
#include "images/agent/ring.h"
#include "images/agent/sender.h"

#include <sys/types.h>

struct run;
struct hunt;

enum run_state { RUN_COLLECTING, RUN_LIVE, RUN_DRAINING, RUN_ENDED };

struct run_pipe {
    struct source src;
    struct run *run;
    bool err;      /* this is stderr */
    bool grown;    /* its pipe was enlarged */
    uint32_t owed; /* DRAINING: bytes that were in it when the run ended */
};

struct run_stdin {
    enum wire_stdin mode;
    struct source src;    /* the pipe's writing end, or the memory file of DATA */
    struct queue pending; /* PIPE: bytes the pipe did not take yet */
    uint64_t received;
    uint64_t taken;
    bool eof; /* nothing more will come */
};

struct run {
    struct run *next;
    struct producer out;
    uint32_t stream;
    enum run_state state;
    char id[WIRE_RUN_ID_MAX + 1];
    pid_t pid;

    bool attached; /* the runner at the other end wants this run's frames */
    bool owes_started, owes_stdin_ack, exit_sent;
    bool pty, timed_out, stopped, oom;
    bool alone; /* when it ended nothing else was alive, so its pipes have no writer */

    struct run_pipe pipe[2]; /* stdout (or the terminal), stderr */
    struct ring ring;
    struct run_stdin in;
    struct queue request; /* COLLECTING: the payload of WIRE_RUN */

    struct timer deadline;
    uint64_t grace_ms;
    struct hunt *hunt; /* its tree is being ended */

    uint64_t started_us, duration_us;
    uint64_t oom_before;
    int status; /* from wait */
    unsigned left;
};

/* run.c: the table */
struct run *run_new(uint32_t stream, const char *id); /* NULL: no memory */
struct run *run_free(struct run *r);                  /* returns NULL */
struct run *run_first(void);
struct run *run_by_stream(uint32_t stream);
struct run *run_by_id(const char *id);
uint32_t run_next_stream(void);
void run_saw_stream(uint32_t stream);
void run_lost_runner(void);

/* run.c: the course of a run */
void run_started(struct run *r, uint64_t timeout_ms);
void run_stop_tree(struct run *r, int sig, uint64_t grace_ms);
bool run_is_main(pid_t pid);
bool run_any_live(void);
bool run_reaped(pid_t pid, int status); /* false: not a run's main process */
void run_reaped_all(void);              /* no more dead children: see to the runs that ended */
void run_advance(struct run *r);        /* there may be room for the rest of the output now */

/* run_out.c: from the pipes to the runner */
void run_out_init(struct run *r);
int run_out_watch(struct run *r);
void run_out_measure(struct run *r); /* how much is in the pipes right now? */
bool run_out_collect(struct run *r); /* move that into the ring; true when all is moved */
void run_out_let_go(struct run *r);  /* close the pipes, or leave them to drain.c */
void run_out_resume(struct run *r);  /* the ring has room again */
void run_out_wake(struct run *r, bool soon);
int run_out_ack(struct run *r, uint64_t before);
int run_out_attach(struct run *r, uint64_t from);

/* run_in.c: from the runner to the command */
void run_in_init(struct run *r);
int run_in_frame(struct run *r, const unsigned char *p, size_t n, bool eof);
void run_in_close(struct run *r);

#endif
