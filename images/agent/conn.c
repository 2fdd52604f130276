#include "images/agent/conn.h"

#include "common/wire.h"
#include "images/agent/loop.h"
#include "images/agent/sender.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define MEND_US     1000000u   /* between two repairs of the socket */
#define BACKLOG_MAX (1u << 20) /* answers waiting: above it no new questions are read */
#define TRIM_US     200000u    /* buffers unused for this long are given back */

static void conn_accept(struct source *s, uint32_t events);
static void conn_ready(struct source *s, uint32_t events);
static void conn_trim(struct timer *t);
static void conn_dir_changed(struct source *s, uint32_t events);
static void conn_mend(struct timer *t);

static struct {
    const char *dir;
    ino_t inode; /* of the socket's name */
    struct source listener, peer, watch;
    struct input input;
    const struct conn_hooks *hooks;
    struct timer trim, mend;
    uint64_t mended; /* when the socket was made anew */
    bool any_peer;
    bool blocked; /* the socket is full */
} conn = {
    .listener = {.fd = -1, .ready = conn_accept},
    .peer = {.fd = -1, .ready = conn_ready},
    .watch = {.fd = -1, .ready = conn_dir_changed},
    .trim = {.fire = conn_trim},
    .mend = {.fire = conn_mend},
};

static int conn_say(const char *what, const char *name)
{
    dprintf(2, "sandbox-agent: %s %s: %s\n", what, name, strerror(errno));
    return -1;
}

static int conn_address(struct sockaddr_un *a, const char *dir, const char *name)
{
    a->sun_family = AF_UNIX;
    int n = snprintf(a->sun_path, sizeof a->sun_path, "%s/%s", dir, name);
    if (n > 0 && (size_t)n < sizeof a->sun_path)
        return 0;
    errno = ENAMETOOLONG;
    return -1;
}

/*
 * The name appears by rename, after listen: whoever sees it can connect. The mode is set on the
 * temporary name, so that at no moment another user may connect.
 */
static int conn_bind(void)
{
    struct sockaddr_un early = {0}, final = {0};
    struct stat st;
    char name[32];
    snprintf(name, sizeof name, ".agent.%d", (int)getpid());
    if (conn_address(&early, conn.dir, name) || conn_address(&final, conn.dir, WIRE_SOCKET))
        return -1;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    (void)unlink(early.sun_path);
    source_close(&conn.listener);
    conn.listener.fd = fd;
    if (bind(fd, (const struct sockaddr *)&early, sizeof early) || chmod(early.sun_path, 0600) ||
        listen(fd, 8) || source_watch(&conn.listener, EPOLLIN) || stat(early.sun_path, &st))
        return -1;
    conn.inode = st.st_ino;
    return rename(early.sun_path, final.sun_path);
}

static void conn_mend(struct timer *t)
{
    struct sockaddr_un a = {0};
    struct stat st;
    (void)t;
    if (conn_address(&a, conn.dir, WIRE_SOCKET) ||
        (!lstat(a.sun_path, &st) && st.st_ino == conn.inode))
        return;
    conn.mended = loop_now();
    (void)conn_bind();
}

/*
 * Something happened in the directory. A command that cleans up /run would otherwise lock out the
 * next runner, so when the name is gone, or not ours any more, the socket is made again: at most
 * once in MEND_US, since somebody else may be doing the same with that name.
 */
static void conn_dir_changed(struct source *s, uint32_t events)
{
    char b[1024];
    (void)events;
    (void)!read(s->fd, b, sizeof b);
    if (loop_now() - conn.mended >= MEND_US)
        conn_mend(&conn.mend);
    else if (!conn.mend.at)
        timer_set(&conn.mend, conn.mended + MEND_US);
}

int conn_listen(const char *dir, bool any_peer, const struct conn_hooks *hooks)
{
    conn.dir = dir;
    conn.hooks = hooks;
    conn.any_peer = any_peer;
    if (conn_bind())
        return conn_say("listen in", dir);
    /* Without this the agent works as well, it only cannot mend its name. */
    conn.watch.fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (conn.watch.fd >= 0 &&
        inotify_add_watch(conn.watch.fd, dir, IN_DELETE | IN_MOVE | IN_ONLYDIR) >= 0)
        (void)source_watch(&conn.watch, EPOLLIN);
    return 0;
}

static void conn_close(void)
{
    if (conn.peer.fd < 0)
        return;
    source_close(&conn.peer);
    input_reset(&conn.input);
    sender_close();
    timer_stop(&conn.trim);
    conn.hooks->lost();
}

static bool peer_allowed(int fd)
{
    struct ucred c;
    socklen_t n = sizeof c;
    if (conn.any_peer)
        return true;
    return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) && c.pid == 0;
}

static void conn_accept(struct source *s, uint32_t events)
{
    (void)events;
    int fd = accept4(s->fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (!peer_allowed(fd)) {
        close(fd);
        return;
    }
    conn_close();
    conn.peer.fd = fd;
    conn.blocked = false;
    conn.input.table = conn.hooks->first;
    sender_open();
    if (source_watch(&conn.peer, EPOLLIN))
        conn_close();
}

void conn_greeted(void)
{
    conn.input.table = conn.hooks->rest;
}

static void conn_trim(struct timer *t)
{
    (void)t;
    input_trim(&conn.input);
    sender_trim();
}

static void conn_read(void)
{
    size_t room;
    unsigned char *p = input_room(&conn.input, &room);
    ssize_t n = p ? recv(conn.peer.fd, p, room, 0) : -1;
    if (n < 0 && p && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || input_take(&conn.input, (size_t)n))
        conn_close();
}

static void conn_ready(struct source *s, uint32_t events)
{
    if (events & EPOLLOUT)
        conn.blocked = false;
    if (events & EPOLLIN)
        conn_read();
    else if (events & (EPOLLHUP | EPOLLERR))
        conn_close();
    (void)s;
}

/* One timer for all buffers, set only when there is something worth giving back. */
static void conn_trim_later(void)
{
    if (!conn.trim.at && (conn.input.bytes.cap > 4096 || sender_is_bulky()))
        timer_set(&conn.trim, loop_now() + TRIM_US);
}

void conn_turn_end(void)
{
    if (conn.peer.fd < 0)
        return;
    conn_trim_later();
    enum sender_state s = sender_flush(conn.peer.fd, !conn.blocked);
    if (s == SENDER_BROKEN) {
        conn_close();
        return;
    }
    conn.blocked = s == SENDER_BLOCKED;
    uint32_t in = sender_backlog() < BACKLOG_MAX ? EPOLLIN : 0;
    uint32_t want = in | (conn.blocked ? EPOLLOUT : 0);
    if (source_watch(&conn.peer, want ? want : EPOLLOUT))
        conn_close();
}
