#include "common/err.h"

static const struct {
    const char *name;
    const char *fix;
} kinds[ERR_KIND_COUNT] = {
    [ERR_OK] = {"ok", ""},
    [ERR_INVALID] = {"invalid", "correct the argument that is named and call again"},
    [ERR_UNAUTH] = {"unauthorized", "send the header 'Authorization: Bearer <SMCP_TOKEN>'"},
    [ERR_FORBIDDEN] = {"forbidden", "this is not allowed here; ask the owner of the server"},
    [ERR_NOTFOUND] = {"not_found",
                      "check the name; list_sandboxes and list_files show what exists"},
    [ERR_CONFLICT] = {"conflict", "wait for the other operation to end, then call again"},
    [ERR_LIMIT] = {"limit", "use less, or ask the owner of the server to raise the limit"},
    [ERR_TIMEOUT] = {"timeout", "call again; for long work use run_background and get_job"},
    [ERR_UNAVAILABLE] = {"unavailable", "ask the owner of the server to run 'make up' there"},
    [ERR_CANCELED] = {"canceled", "call again if it is still wanted"},
    [ERR_INTERNAL] = {"internal", "call again; if it stays, the owner finds the cause in the log"},
};

_printf_(6, 0) static int fill(struct err *e, enum err_kind kind, int sys, const char *file,
                               int line, const char *fmt, va_list ap)
{
    if (!e)
        return -1;
    memset(e, 0, offsetof(struct err, msg));
    e->kind = kind;
    e->sys = sys;
    e->file = file;
    e->line = line;
    e->fix[0] = '\0';
    int n = vsnprintf(e->msg, sizeof e->msg, fmt, ap);
    if (sys && n >= 0 && (size_t)n + 2 < sizeof e->msg)
        (void)snprintf(e->msg + n, sizeof e->msg - (size_t)n, ": %s", strerror(sys));
    return -1;
}

int err_set_at(struct err *e, enum err_kind kind, const char *file, int line, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int r = fill(e, kind, 0, file, line, fmt, ap);
    va_end(ap);
    return r;
}

int err_sys_at(struct err *e, const char *file, int line, const char *fmt, ...)
{
    int sys = errno;
    va_list ap;
    va_start(ap, fmt);
    int r = fill(e, ERR_INTERNAL, sys, file, line, fmt, ap);
    va_end(ap);
    return r;
}

int err_wrap(struct err *e, const char *fmt, ...)
{
    if (!e)
        return -1;
    char joined[sizeof e->msg];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(joined, sizeof joined, fmt, ap);
    va_end(ap);
    if (n >= 0 && (size_t)n + 2 < sizeof joined) {
        size_t room = sizeof joined - (size_t)n - 3;
        (void)snprintf(joined + n, sizeof joined - (size_t)n, ": %.*s", (int)room, e->msg);
    }
    memcpy(e->msg, joined, sizeof joined);
    return -1;
}

int err_fix(struct err *e, const char *code, const char *fmt, ...)
{
    if (!e)
        return -1;
    if (code)
        e->code = code;
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(e->fix, sizeof e->fix, fmt, ap);
    va_end(ap);
    return -1;
}

const char *err_kind_name(enum err_kind kind)
{
    return kinds[kind].name;
}

enum err_kind err_kind_from(const char *name)
{
    for (unsigned k = 0; k < ERR_KIND_COUNT; k++)
        if (streq(kinds[k].name, name))
            return (enum err_kind)k;
    return ERR_INTERNAL;
}

const char *err_code(const struct err *e)
{
    return e->code ? e->code : kinds[e->kind].name;
}

const char *err_fix_text(const struct err *e)
{
    return e->fix[0] ? e->fix : kinds[e->kind].fix;
}
