/*
 * oneshot.h - `sandbox-mcp call TOOL [JSON]`: one tool from the shell.
 *
 * Prints the result, or the error, as one line of JSON. Exit status 0, or 1 for an error.
 */
#ifndef SMCP_FCGI_ONESHOT_H
#define SMCP_FCGI_ONESHOT_H

#include "common/settings.h"

int oneshot_run(const struct settings *s, const char *tool, const char *json);

#endif
