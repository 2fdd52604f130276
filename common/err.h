/*
 * err.h - the one error type.
 *
 * A `struct err` is a value on the caller's stack; nothing in it is allocated. Fallible functions
 * take it last and return -1 (or NULL) after filling it in; on success they leave it alone.
 * Only the top of a call chain logs or shows an error.
 *
 * Two readers: the log gets kind, place and message; a model gets {error, code, fix}, where `fix`
 * says what to do next. An error without a fix gets the general one of its kind (err_fix_text).
 */
#ifndef SMCP_ERR_H
#define SMCP_ERR_H

#include "common/base.h"

enum err_kind {
    ERR_OK = 0,
    ERR_INVALID,     /* the request is wrong; the same request will fail again */
    ERR_UNAUTH,      /* who is asking is not known */
    ERR_FORBIDDEN,   /* known, but not allowed */
    ERR_NOTFOUND,    /* the thing named does not exist */
    ERR_CONFLICT,    /* it exists in a state that does not allow this */
    ERR_LIMIT,       /* a configured or fixed limit was reached */
    ERR_TIMEOUT,     /* took too long */
    ERR_UNAVAILABLE, /* a part of the system is down */
    ERR_CANCELED,
    ERR_INTERNAL, /* our own fault */
    ERR_KIND_COUNT
};

struct err {
    enum err_kind kind;
    int sys;          /* errno, 0 when none */
    const char *code; /* stable code, static string; NULL: the kind's own */
    const char *file;
    int line;
    char msg[512];
    char fix[320];
};

#define ERR_INIT                                                                                   \
    {                                                                                              \
        .kind = ERR_OK                                                                             \
    }

/* Each returns -1, so that a function can `return err_set(e, ...)`. */
#define err_set(e, kind, ...) err_set_at(e, kind, __FILE__, __LINE__, __VA_ARGS__)
#define err_sys(e, ...)       err_sys_at(e, __FILE__, __LINE__, __VA_ARGS__) /* takes errno */
int err_set_at(struct err *e, enum err_kind kind, const char *file, int line, const char *fmt, ...)
    _printf_(5, 6);
int err_sys_at(struct err *e, const char *file, int line, const char *fmt, ...) _printf_(4, 5);

/* Puts "context: " before the message that is there. */
int err_wrap(struct err *e, const char *fmt, ...) _printf_(2, 3);

/* Adds what to do next, and the stable code (a string that lives for ever). */
int err_fix(struct err *e, const char *code, const char *fmt, ...) _printf_(3, 4);

const char *err_code(const struct err *e);     /* "not_found", ... never NULL */
const char *err_fix_text(const struct err *e); /* never NULL */
const char *err_kind_name(enum err_kind kind);

/* The kind whose name this is; ERR_INTERNAL for an unknown name. */
enum err_kind err_kind_from(const char *name);

#endif
