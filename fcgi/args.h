/*
 * args.h - the arguments of one tool call, read after schema_validate has accepted them.
 *
 * null counts as absent. Numbers and booleans may have come as clean strings ("30", "true"); the
 * accessors convert. Old argument names of an alias are found under the new one.
 */
#ifndef SMCP_FCGI_ARGS_H
#define SMCP_FCGI_ARGS_H

#include "common/base.h"
#include "common/json.h"

struct rename {
    const char *old;
    const char *now;
};

#define RENAMES_MAX 4

struct args {
    const struct json *obj;       /* object, or NULL: no arguments */
    const struct rename *renames; /* RENAMES_MAX entries, unused ones zero; or NULL */
};

/* The node under its current name, or NULL. */
const struct json *args_get(const struct args *a, const char *name);

/* The current name of an argument that was given as `key`. */
const char *args_name(const struct args *a, const char *key);

bool args_has(const struct args *a, const char *name);
const char *args_string(const struct args *a, const char *name, const char *def);
double args_number(const struct args *a, const char *name, double def);
int64_t args_int(const struct args *a, const char *name, int64_t def);
bool args_bool(const struct args *a, const char *name, bool def);

/* A JSON number alone in a string; false for everything else ("30s", "", "NaN", " 1"). */
bool args_parse_number(const char *s, double *ret);

#endif
