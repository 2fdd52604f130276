#include "fcgi/window.h"

void window_init(struct window *w, int64_t first, int64_t lines, size_t cap)
{
    *w = (struct window){.first = first, .left = lines, .line = 1};
    buf_init(&w->out, cap);
}

void window_release(struct window *w)
{
    buf_release(&w->out);
}

/* Over the cap: go back to the end of the last whole line, if there is one. */
static void over(struct window *w, const char *p)
{
    w->more = true;
    if (w->start > 0) {
        w->out.len = w->start;
        w->out.p[w->start] = '\0';
        return;
    }
    buf_add(&w->out, p, w->out.max - w->out.len);
    w->cut_line = true;
}

/* One line, or the part of it that is there. False: the window is complete. */
static bool take(struct window *w, const char *p, size_t n, bool whole)
{
    if (w->left <= 0) {
        w->more = true;
        return false;
    }
    if (n > w->out.max - w->out.len) {
        over(w, p);
        return false;
    }
    buf_add(&w->out, p, n);
    if (whole) {
        w->start = w->out.len;
        w->left--;
    }
    return true;
}

bool window_feed(struct window *w, const char *p, size_t n)
{
    while (n) {
        const char *nl = memchr(p, '\n', n);
        size_t len = nl ? (size_t)(nl - p) + 1 : n;
        if (w->line >= w->first && !take(w, p, len, nl != NULL))
            return true;
        w->line += nl != NULL;
        p += len;
        n -= len;
    }
    return false;
}

int64_t window_next_line(const struct window *w)
{
    return w->cut_line ? w->line + 1 : w->line;
}
