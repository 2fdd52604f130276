#include "images/agent/drain.h"

#include "images/agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define BITE (256u << 10) /* bytes in one turn */

/* To /dev/null inside the kernel where that works (pipes), else through a small buffer (ttys). */
static ssize_t discard(int fd)
{
    char b[4096];
    ssize_t n = splice(fd, NULL, SPAWN_NULL, NULL, BITE, SPLICE_F_NONBLOCK);
    return n < 0 && errno == EINVAL ? read(fd, b, sizeof b) : n;
}

static bool is_over(ssize_t n)
{
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static void drain_ready(struct source *s, uint32_t events)
{
    if (events & EPOLLIN && !is_over(discard(s->fd)))
        return;
    source_close(s);
    free(s);
}

void drain_take(struct source *from)
{
    struct source *s = NULL;
    (void)source_watch(from, 0);
    /* In most cases the last writer has just died, and this shows it. */
    if (is_over(discard(from->fd)) || !(s = calloc(1, sizeof *s))) {
        source_close(from);
        return;
    }
    *s = (struct source){.fd = from->fd, .ready = drain_ready};
    from->fd = -1;
    if (source_watch(s, EPOLLIN)) {
        source_close(s);
        free(s);
    }
}
