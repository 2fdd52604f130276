#include "images/agent/env.h"

#include <stdlib.h>
#include <string.h>

static const char *const defaults[] = {
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
    "TERM=dumb",
    "SHELL=/bin/sh",
    "USER=root",
    "GIT_TERMINAL_PROMPT=0",
    "DEBIAN_FRONTEND=noninteractive",
    "PAGER=cat",
    "GIT_PAGER=cat",
};

static struct {
    char **base; /* the container's variables and the missing defaults, NULL-terminated */
    size_t count;
    bool own_term; /* the container says what TERM is, also for a terminal of ours */
} env;

static size_t name_length(const char *entry)
{
    return strcspn(entry, "=");
}

static bool same_name(const char *a, const char *b)
{
    size_t n = name_length(a);
    return !strncmp(a, b, n) && (b[n] == '=' || b[n] == 0);
}

const char *env_get(char *const *list, const char *name)
{
    size_t n = strlen(name);
    for (; *list; list++)
        if (!strncmp(*list, name, n) && (*list)[n] == '=')
            return *list + n + 1;
    return NULL;
}

int env_init(char **environ_now)
{
    size_t count = 0;
    while (environ_now[count])
        count++;
    env.base = calloc(count + ARRAY_LEN(defaults) + 1, sizeof *env.base);
    if (!env.base)
        return -1;
    for (size_t i = 0; i < count; i++)
        if (!same_name(environ_now[i], WIRE_RUN_ENV "="))
            env.base[env.count++] = environ_now[i];
    env.own_term = env_get(env.base, "TERM") != NULL;
    size_t given = env.count;
    for (size_t i = 0; i < ARRAY_LEN(defaults); i++) {
        bool known = false;
        for (size_t j = 0; j < given && !known; j++)
            known = same_name(defaults[i], env.base[j]);
        if (!known)
            env.base[env.count++] = (char *)(uintptr_t)defaults[i];
    }
    return 0;
}

char *arena_string(struct arena *a, const void *p, size_t n)
{
    char *s = a->p + a->at;
    if (n)
        memcpy(s, p, n);
    s[n] = 0;
    a->at += n + 1;
    return s;
}

size_t env_slots(size_t envs)
{
    return 1 + env.count + 1 + envs + 1;
}

/* Slot 0 is the run's id and stays. */
static void env_put(char **slots, size_t *count, char *entry)
{
    for (size_t i = 0; i < *count; i++) {
        if (!same_name(entry, slots[i]))
            continue;
        if (i)
            slots[i] = entry;
        return;
    }
    slots[(*count)++] = entry;
}

static int env_put_fields(char **slots, size_t *count, struct arena *a, const struct fields *f,
                          const char **why)
{
    struct wire_field v;
    size_t pos = 0;
    while (fields_each(f, WT_ENV, &pos, &v)) {
        const unsigned char *is = memchr(v.p, '=', v.n);
        *why = memchr(v.p, 0, v.n) ? "holds a NUL byte"
               : !is || is == v.p  ? "is not NAME=value"
                                   : NULL;
        if (*why)
            return -1;
        env_put(slots, count, arena_string(a, v.p, v.n));
    }
    return 0;
}

int env_build(char **slots, struct arena *a, const struct fields *f, const char *run_id, bool pty,
              const char **why)
{
    size_t count = 1 + env.count;
    slots[0] = a->p + a->at;
    memcpy(slots[0], WIRE_RUN_ENV "=", sizeof WIRE_RUN_ENV);
    a->at += sizeof WIRE_RUN_ENV;
    (void)arena_string(a, run_id, strlen(run_id));
    memcpy(slots + 1, env.base, env.count * sizeof *slots);
    if (pty && !env.own_term)
        env_put(slots, &count, (char *)(uintptr_t) "TERM=xterm-256color");
    if (env_put_fields(slots, &count, a, f, why))
        return -1;
    slots[count] = NULL;
    return 0;
}
