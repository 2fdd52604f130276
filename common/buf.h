/*
 * buf.h - the one buffer type, and a view of bytes owned by someone else.
 *
 * Invariants: `p` is never NULL and always ends in a NUL that `len` does not count; `len` is the
 *   truth (bytes may contain NUL). A buffer never grows over `max`: adding more sets `bad`, drops
 *   what was to be added, and makes every later add do nothing. So builders add freely and look
 *   at buf_bad() once at the end.
 * Ownership: BUF_INIT allocates nothing; buf_release frees; buf_take hands the bytes to the caller.
 */
#ifndef SMCP_BUF_H
#define SMCP_BUF_H

#include "common/base.h"

struct buf {
    char *p;
    size_t len;
    size_t cap; /* bytes allocated; 0: `p` is the shared empty string */
    size_t max; /* most bytes of content */
    bool bad;
};

extern char buf_empty[1];

#define BUF_INIT(most)                                                                             \
    {                                                                                              \
        .p = buf_empty, .max = (most)                                                              \
    }

void buf_init(struct buf *b, size_t max);
void buf_release(struct buf *b);
void buf_clear(struct buf *b); /* empty again, keeps the memory, forgets `bad` */
#define _cleanup_buf_ _cleanup_(buf_release)

static inline bool buf_bad(const struct buf *b)
{
    return b->bad;
}

void buf_add(struct buf *b, const void *p, size_t n);
void buf_adds(struct buf *b, const char *s);
void buf_addc(struct buf *b, char c);
void buf_addf(struct buf *b, const char *fmt, ...) _printf_(2, 3);

/* Room for n more bytes to write into directly, or NULL (and bad); then buf_commit what came. */
char *buf_reserve(struct buf *b, size_t n);
void buf_commit(struct buf *b, size_t n);

void buf_drop_front(struct buf *b, size_t n);
void buf_cut(struct buf *b, size_t len); /* keep the first len bytes */
char *buf_take(struct buf *b);           /* caller frees; the buffer is empty again */

#endif
