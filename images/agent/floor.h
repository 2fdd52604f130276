/*
 * floor.h - the benchmark floor: how fast can this machine start and reap `sh -c true` at all?
 *
 * Runs in the foreground with the spawn code of real runs, but without pipes, frames or a loop.
 * Prints one JSON object on stdout; returns the exit status of the program.
 */
#ifndef AGENT_FLOOR_H
#define AGENT_FLOOR_H

int floor_main(unsigned count, unsigned jobs);

#endif
