#include "common/buf.h"

char buf_empty[1] = "";

void buf_init(struct buf *b, size_t max)
{
    *b = (struct buf)BUF_INIT(max);
}

void buf_release(struct buf *b)
{
    if (b->cap)
        free(b->p);
    buf_init(b, b->max);
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->bad = false;
    if (b->cap)
        b->p[0] = '\0';
}

char *buf_reserve(struct buf *b, size_t n)
{
    if (b->bad || n > b->max - b->len) {
        b->bad = true;
        return NULL;
    }
    size_t need = b->len + n + 1;
    if (need > b->cap) {
        size_t cap = MAX(need, MIN(b->cap + b->cap / 2, b->max + 1));
        cap = MAX(cap, (size_t)64);
        b->p = xrealloc(b->cap ? b->p : NULL, cap);
        b->cap = cap;
        b->p[b->len] = '\0';
    }
    return b->p + b->len;
}

void buf_commit(struct buf *b, size_t n)
{
    check(b->cap && b->len + n < b->cap);
    b->len += n;
    b->p[b->len] = '\0';
}

void buf_add(struct buf *b, const void *p, size_t n)
{
    if (!n)
        return;
    char *at = buf_reserve(b, n);
    if (!at)
        return;
    memcpy(at, p, n);
    buf_commit(b, n);
}

void buf_adds(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_addc(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_addf(struct buf *b, const char *fmt, ...)
{
    char small[256];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(small, sizeof small, fmt, ap);
    va_end(ap);
    check(n >= 0);
    if ((size_t)n < sizeof small) {
        buf_add(b, small, (size_t)n);
        return;
    }
    char *at = buf_reserve(b, (size_t)n);
    if (!at)
        return;
    va_start(ap, fmt);
    (void)vsnprintf(at, (size_t)n + 1, fmt, ap);
    va_end(ap);
    buf_commit(b, (size_t)n);
}

void buf_drop_front(struct buf *b, size_t n)
{
    check(n <= b->len);
    if (!n)
        return;
    memmove(b->p, b->p + n, b->len - n);
    b->len -= n;
    b->p[b->len] = '\0';
}

void buf_cut(struct buf *b, size_t len)
{
    check(len <= b->len);
    b->len = len;
    if (b->cap)
        b->p[len] = '\0';
}

char *buf_take(struct buf *b)
{
    char *p = b->cap ? b->p : xstrdup("");
    buf_init(b, b->max);
    return p;
}
