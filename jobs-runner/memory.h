/*
 * memory.h - memory that was only needed to start.
 *
 * libcurl brings some forty libraries, and loading them touches much code that a daemon which talks
 * to one unix socket never runs again. memory_forget_code unmaps the program text of all of them;
 * what is used comes back from the page cache at the next call, page by page.
 */
#ifndef RUNNER_MEMORY_H
#define RUNNER_MEMORY_H

void memory_forget_code(void);

#endif
