/*
 * env.h - the environment of a command.
 *
 * Rule:      SMCP_RUN_ID first (so that a scan of /proc finds it at once), then the container's
 *            own environment, then defaults for what that lacks, then the run's ENV fields, of
 *            which the last one with a name wins over everything before it.
 * Ownership: env_init() keeps a pointer to the environ it is given. A built environment points
 *            into that, into constants and into the caller's arena.
 * Limits:    ENV_MAX fields in one request.
 */
#ifndef AGENT_ENV_H
#define AGENT_ENV_H

#include "images/agent/fields.h"

#define ENV_MAX 1024u

/* Memory for the strings of one request; the caller has made it large enough. */
struct arena {
    char *p;
    size_t at;
};

char *arena_string(struct arena *a, const void *p, size_t n);

int env_init(char **environ_now);

/* Slots env_build() may use for a request with this many ENV fields, with the final NULL. */
size_t env_slots(size_t envs);

/* 0, or -1 and in *why what is wrong with an ENV field. */
int env_build(char **slots, struct arena *a, const struct fields *f, const char *run_id, bool pty,
              const char **why);

/* The value of a variable, or NULL. */
const char *env_get(char *const *env, const char *name);

#endif
