/*
 * base.h - included first in every C file of the project.
 *
 * Purpose: feature macros, the system headers used everywhere, attributes, cleanup attributes,
 *          and the list of libc functions that may not be used here.
 * Cleanup: `_cleanup_free_`, `_cleanup_close_` run when the variable leaves its scope; declare
 *          the variable where it gets its value. TAKE_PTR and TAKE_FD hand the value over.
 * Memory:  x*alloc abort when there is none: a size that a client chooses goes through `struct
 *          buf`, which has a maximum and reports ERR_LIMIT instead.
 */
#ifndef SMCP_BASE_H
#define SMCP_BASE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

#define _cleanup_(f)   __attribute__((cleanup(f)))
#define _printf_(a, b) __attribute__((format(printf, a, b)))
#define _check_        __attribute__((warn_unused_result))
#define _unused_       __attribute__((unused))
#define _noreturn_     __attribute__((noreturn))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define MIN(a, b)    ((a) < (b) ? (a) : (b))
#define MAX(a, b)    ((a) > (b) ? (a) : (b))

#define TAKE_PTR(p)                                                                                \
    __extension__({                                                                                \
        __typeof__(p) taken_ = (p);                                                                \
        (p) = NULL;                                                                                \
        taken_;                                                                                    \
    })

#define TAKE_FD(fd)                                                                                \
    __extension__({                                                                                \
        int taken_ = (fd);                                                                         \
        (fd) = -1;                                                                                 \
        taken_;                                                                                    \
    })

/* A fault in the program itself: says where and aborts; the supervisor starts it again. */
_noreturn_ void bug_at(const char *file, int line, const char *what);
#define BUG(what) bug_at(__FILE__, __LINE__, what)
#define check(cond)                                                                                \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0))                                                          \
            bug_at(__FILE__, __LINE__, #cond);                                                     \
    } while (0)

void *xmalloc(size_t n) __attribute__((malloc, returns_nonnull));
void *xcalloc(size_t n, size_t size) __attribute__((malloc, returns_nonnull));
void *xrealloc(void *p, size_t n) __attribute__((returns_nonnull));
char *xstrdup(const char *s) __attribute__((malloc, returns_nonnull));
char *xstrndup(const char *s, size_t n) __attribute__((malloc, returns_nonnull));

static inline void freep(void *p)
{
    void *v;
    memcpy(&v, p, sizeof v);
    free(v);
}

static inline void closep(const int *fd)
{
    int saved = errno;
    if (*fd >= 0)
        (void)close(*fd);
    errno = saved;
}

static inline void fclosep(FILE **f)
{
    if (*f)
        (void)fclose(*f);
}

#define _cleanup_free_   _cleanup_(freep)
#define _cleanup_close_  _cleanup_(closep)
#define _cleanup_fclose_ _cleanup_(fclosep)

static inline bool streq(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* Unsafe or unbounded calls, and ones that would start a process on the host. With clang, glibc's
 * checked versions are macros, which cannot be poisoned. */
#undef sprintf
#undef vsprintf
#pragma GCC poison strcpy strcat strncpy strncat sprintf vsprintf gets strtok atoi atol
#pragma GCC poison gmtime localtime mktemp tmpnam system popen setenv putenv

#endif
