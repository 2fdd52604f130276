#include "common/base.h"

void bug_at(const char *file, int line, const char *what)
{
    fprintf(stderr, "<0>BUG %s:%d: %s\n", file, line, what);
    abort();
}

static void *must(void *p)
{
    if (!p)
        BUG("out of memory");
    return p;
}

void *xmalloc(size_t n)
{
    return must(malloc(n ? n : 1));
}

void *xcalloc(size_t n, size_t size)
{
    return must(calloc(n ? n : 1, size ? size : 1));
}

void *xrealloc(void *p, size_t n)
{
    return must(realloc(p, n ? n : 1));
}

char *xstrdup(const char *s)
{
    return must(strdup(s));
}

char *xstrndup(const char *s, size_t n)
{
    return must(strndup(s, n));
}
