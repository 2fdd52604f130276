/*
 * reap.h - the duties of PID 1: reap every dead child, stop on request.
 *
 * Signals:  all are blocked (spawn_init) and read from one descriptor. As PID 1 only a signal from
 *           outside the pid namespace stops the agent: `kill 1` in a sandbox must not end it.
 * Stop:     TERM to everything, a short wait, KILL to everything; bounded by half a second.
 */
#ifndef AGENT_REAP_H
#define AGENT_REAP_H

int reap_init(void);

/* After loop_stop(): end every process. */
void reap_shutdown(void);

#endif
