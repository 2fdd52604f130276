/*
 * gc.h - what goes after its time: idle sandboxes (first stopped, then removed), expired ones,
 * records and logs of old runs, requests nobody waits for, FIFOs of processes that are gone,
 * containers that no sandbox has.
 *
 * Idle means no call, no run and no wait; the time is monotonic and counts from the end of the last
 * use. A sandbox in use is never touched, except when its own time to live is over.
 */
#ifndef RUNNER_GC_H
#define RUNNER_GC_H

#include "jobs-runner/runner.h"

int gc_start(struct runner *r, struct err *e) _check_;
void gc_stop(struct runner *r);

#endif
