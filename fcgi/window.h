/*
 * window.h - a range of lines out of a stream of bytes, with a cap on its size.
 *
 * Feed the bytes in pieces until window_feed says that the range is complete. The text ends at the
 * end of a line where that is possible: only a single line larger than the cap is cut inside.
 */
#ifndef SMCP_FCGI_WINDOW_H
#define SMCP_FCGI_WINDOW_H

#include "common/base.h"
#include "common/buf.h"

struct window {
    int64_t first;  /* first line wanted, from 1 */
    int64_t left;   /* lines still wanted */
    int64_t line;   /* number of the line that the next byte belongs to */
    size_t start;   /* where the current line begins in `out` */
    struct buf out; /* its max is the cap */
    bool more;      /* something follows that is not in `out` */
    bool cut_line;  /* the only line is cut inside */
};

void window_init(struct window *w, int64_t first, int64_t lines, size_t cap);
void window_release(struct window *w);

/* True: complete, no more bytes are needed. */
bool window_feed(struct window *w, const char *p, size_t n);

/* The line to ask for next; only when `more`. */
int64_t window_next_line(const struct window *w);

#endif
