#include "images/agent/names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PIECES 4 /* buffers read in one call of names_scan() */

struct dirent_raw {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
};

const char *names_get(const struct names *n, size_t i)
{
    return (const char *)queue_head(&n->text) + n->at[i];
}

void names_release(struct names *n)
{
    queue_release(&n->text);
    free(n->at);
    *n = (struct names){0};
}

int names_begin(struct names *n, int dir, size_t most)
{
    names_release(n);
    n->most = most;
    n->at = malloc(2 * most * sizeof *n->at);
    return n->at && lseek(dir, 0, SEEK_SET) == 0 ? 0 : -1;
}

static int by_text(const void *a, const void *b, void *text)
{
    const char *t = text;
    return strcmp(t + *(const uint32_t *)a, t + *(const uint32_t *)b);
}

/* Sort, and keep only the smallest `most` with a text that holds nothing else. */
static void names_cut(struct names *n)
{
    if (!n->count)
        return;
    qsort_r(n->at, n->count, sizeof *n->at, by_text, queue_head(&n->text));
    if (n->count <= n->most)
        return;
    struct queue kept = {0};
    for (size_t i = 0; i < n->most; i++) {
        const char *s = names_get(n, i);
        uint32_t at = (uint32_t)kept.len;
        if (queue_add(&kept, s, strlen(s) + 1))
            break;
        n->at[i] = at;
    }
    queue_release(&n->text);
    n->text = kept;
    n->count = n->most;
    n->more = true;
}

static void names_add(struct names *n, const char *name, const char *after)
{
    if (!strcmp(name, ".") || !strcmp(name, "..") || strcmp(name, after) <= 0)
        return;
    /* After a cut the last kept name is the limit: what is greater belongs to a later scan. */
    if (n->more && n->count >= n->most && strcmp(name, names_get(n, n->most - 1)) > 0)
        return;
    uint32_t at = (uint32_t)n->text.len;
    if (queue_add(&n->text, name, strlen(name) + 1))
        return;
    n->at[n->count++] = at;
    if (n->count == 2 * n->most)
        names_cut(n);
}

int names_scan(struct names *n, int dir, const char *after)
{
    _Alignas(8) char b[8192];
    for (int piece = 0; piece < PIECES; piece++) {
        long len = syscall(SYS_getdents64, dir, b, sizeof b);
        if (len <= 0) {
            names_cut(n);
            return 0;
        }
        for (long at = 0; at < len;) {
            const struct dirent_raw *d = (const void *)(b + at);
            names_add(n, d->name, after);
            at += d->reclen;
        }
    }
    return 1;
}
