/*
 * stdio.h - MCP over stdin and stdout, one JSON text a line, for clients on the same machine.
 *
 * One process without threads: lines are read on while tools run, and answers leave in the order
 * in which they are ready. Nothing else is written to stdout. Ends at EOF or SIGTERM.
 * A jobs-runner that is not there is started, beside this program, by the first tool that needs
 * it, with its log in RUN_DIR/jobs-runner.log; it goes on after this process has ended, and the
 * next one finds it.
 */
#ifndef SMCP_FCGI_STDIO_H
#define SMCP_FCGI_STDIO_H

#include "common/settings.h"

int stdio_run(const struct settings *s, const char *env_file);

#endif
