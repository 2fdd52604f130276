#include "images/agent/queue.h"

#include <string.h>
#include <sys/mman.h>

#define PAGE 4096u

static int queue_grow(struct queue *q, size_t need)
{
    size_t cap = q->cap ? q->cap : PAGE;
    while (cap < need)
        cap *= 2;
    void *p = q->p ? mremap(q->p, q->cap, cap, MREMAP_MAYMOVE)
                   : mmap(NULL, cap, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return -1;
    q->p = p;
    q->cap = cap;
    return 0;
}

unsigned char *queue_room(struct queue *q, size_t n)
{
    if (q->from && q->cap - q->from - q->len < n) {
        memmove(q->p, q->p + q->from, q->len);
        q->from = 0;
    }
    if (q->cap - q->from - q->len < n && queue_grow(q, q->len + n))
        return NULL;
    return q->p + q->from + q->len;
}

void queue_added(struct queue *q, size_t n)
{
    q->len += n;
}

int queue_add(struct queue *q, const void *p, size_t n)
{
    if (!n)
        return 0;
    unsigned char *to = queue_room(q, n);
    if (!to)
        return -1;
    memcpy(to, p, n);
    q->len += n;
    return 0;
}

size_t queue_spare(const struct queue *q)
{
    return q->cap - q->from - q->len;
}

unsigned char *queue_head(const struct queue *q)
{
    return q->p ? q->p + q->from : NULL;
}

void queue_drop(struct queue *q, size_t n)
{
    q->len -= n;
    q->from = q->len ? q->from + n : 0;
}

void queue_release(struct queue *q)
{
    if (q->p)
        munmap(q->p, q->cap);
    *q = (struct queue){0};
}
