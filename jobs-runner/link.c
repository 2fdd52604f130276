#include "common/base.h"

#include "jobs-runner/link.h"

#include "common/log.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>

struct stream {
    uint32_t id;
    link_frame *frame;
    void *arg;
};

struct link {
    struct runner *r;
    struct link_events ev;
    sd_event_source *io;
    int fd;
    uint64_t serial;
    uint32_t next_stream;
    struct stream *streams;
    size_t n_streams, cap_streams;
    struct buf in;   /* the beginning of a frame */
    struct buf join; /* parts of a split message */
    struct wire_header join_as;
    struct buf out; /* what the socket did not take yet, from out_at on */
    size_t out_at;
    bool wants_out;
    bool busy;   /* frames are being handed out: free later */
    bool closed; /* link_close was called */
    bool broken; /* reported as lost */
    sd_event_source *report;
};

/* One thread, one read at a time: the links share the place that bytes are received in. */
static unsigned char rx[WIRE_WINDOW + WIRE_HEADER];
static uint64_t serials;

static struct link *destroy(struct link *l)
{
    if (l->io)
        (void)sd_event_source_disable_unref(l->io);
    if (l->report)
        (void)sd_event_source_disable_unref(l->report);
    closep(&l->fd);
    free(l->streams);
    buf_release(&l->in);
    buf_release(&l->join);
    buf_release(&l->out);
    free(l);
    return NULL;
}

struct link *link_close(struct link *l)
{
    if (!l)
        return NULL;
    l->closed = true;
    if (!l->busy)
        return destroy(l);
    return NULL;
}

uint64_t link_serial(const struct link *l)
{
    return l->serial;
}

static int on_report(sd_event_source *s, void *arg)
{
    (void)s;
    struct link *l = arg;
    struct err e = ERR_INIT;
    err_set(&e, ERR_UNAVAILABLE, "the connection to the sandbox's agent ended");
    l->ev.lost(l->ev.arg, &e);
    return 0;
}

/* Report from the loop, not from within whatever found out. */
static void broke(struct link *l)
{
    if (l->broken)
        return;
    l->broken = true;
    if (l->io)
        (void)sd_event_source_set_enabled(l->io, SD_EVENT_OFF);
    (void)sd_event_add_defer(l->r->loop, &l->report, on_report, l);
}

static void watch_out(struct link *l, bool want)
{
    if (l->wants_out == want)
        return;
    l->wants_out = want;
    uint32_t events = EPOLLIN | (want ? (uint32_t)EPOLLOUT : 0u);
    (void)sd_event_source_set_io_events(l->io, events);
}

static void write_queued(struct link *l)
{
    while (l->out_at < l->out.len && !l->broken) {
        ssize_t n =
            send(l->fd, l->out.p + l->out_at, l->out.len - l->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            broke(l);
        if (n < 0)
            break;
        l->out_at += (size_t)n;
    }
    if (l->out_at == l->out.len) {
        buf_release(&l->out);
        l->out_at = 0;
    }
    watch_out(l, l->out.len > 0);
}

static int send_frame(struct link *l, const struct wire_header *h, const void *p)
{
    unsigned char head[WIRE_HEADER];
    wire_header_put(head, h);
    size_t done = 0, all = WIRE_HEADER + h->length;
    if (!l->out.len) {
        union {
            const void *in;
            void *out;
        } u = {.in = p};
        struct iovec v[2] = {{head, sizeof head}, {u.out, h->length}};
        struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
        ssize_t n = sendmsg(l->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR) {
            broke(l);
            return -1;
        }
        done = n > 0 ? (size_t)n : 0;
    }
    if (done == all)
        return 0;
    if (l->out_at > WIRE_WINDOW) { /* what was sent need not be kept in front */
        buf_drop_front(&l->out, l->out_at);
        l->out_at = 0;
    }
    size_t from_head = MIN(done, sizeof head);
    buf_add(&l->out, head + from_head, sizeof head - from_head);
    buf_add(&l->out, (const char *)p + (done - from_head), h->length - (done - from_head));
    if (buf_bad(&l->out)) {
        broke(l);
        return -1;
    }
    watch_out(l, true);
    return 0;
}

int link_send(struct link *l, enum wire_type type, uint8_t flags, uint32_t stream, const void *p,
              size_t n)
{
    const char *from = p;
    if (l->broken || l->closed)
        return -1;
    do {
        size_t part = MIN(n, (size_t)WIRE_MAX_PAYLOAD);
        bool last = part == n;
        bool raw = type == WIRE_STDIN || type == WIRE_FILE_DATA;
        uint8_t f = last ? flags : raw ? 0 : (uint8_t)(flags | WIRE_F_MORE);
        struct wire_header h = {
            .length = (uint32_t)part, .type = (uint8_t)type, .flags = f, .stream = stream};
        if (send_frame(l, &h, from) < 0)
            return -1;
        from += part;
        n -= part;
    } while (n);
    return 0;
}

void link_set_next_stream(struct link *l, uint32_t next)
{
    l->next_stream = MAX(l->next_stream, next);
}

static struct stream *stream_find(struct link *l, uint32_t id)
{
    for (size_t i = 0; i < l->n_streams; i++)
        if (l->streams[i].id == id)
            return &l->streams[i];
    return NULL;
}

uint32_t link_stream_add(struct link *l, uint32_t id, link_frame *frame, void *arg)
{
    if (id && stream_find(l, id))
        return 0;
    while (!id || stream_find(l, id)) /* the agent says where free numbers begin, and may lie */
        id = l->next_stream++;
    if (l->n_streams == l->cap_streams) {
        l->cap_streams = l->cap_streams ? 2 * l->cap_streams : 4;
        l->streams = xrealloc(l->streams, l->cap_streams * sizeof *l->streams);
    }
    l->streams[l->n_streams++] = (struct stream){.id = id, .frame = frame, .arg = arg};
    return id;
}

void link_stream_drop(struct link *l, uint32_t id)
{
    struct stream *s = stream_find(l, id);
    if (s)
        *s = l->streams[--l->n_streams];
}

static void hand_out(struct link *l, const struct wire_header *h, const unsigned char *p, size_t n)
{
    if (h->type == WIRE_HELLO_ACK) {
        l->ev.hello(l->ev.arg, p, n);
        return;
    }
    const struct stream *s = stream_find(l, h->stream);
    if (s)
        s->frame(s->arg, h, p, n);
}

/* Join split messages; false when the parts do not belong together or are too long. */
static bool take_frame(struct link *l, const struct wire_header *h, const unsigned char *p)
{
    bool joining = l->join.len > 0;
    if (joining && (l->join_as.type != h->type || l->join_as.stream != h->stream))
        return false;
    if (!joining && !(h->flags & WIRE_F_MORE)) {
        hand_out(l, h, p, h->length);
        return true;
    }
    l->join_as = *h;
    buf_add(&l->join, p, h->length);
    if (buf_bad(&l->join))
        return false;
    if (!(h->flags & WIRE_F_MORE)) {
        size_t n = l->join.len;
        _cleanup_free_ char *whole = buf_take(&l->join);
        hand_out(l, h, (const unsigned char *)whole, n);
    }
    return true;
}

/* FILE_DATA goes both ways; every other type belongs to one direction. */
static bool from_agent(unsigned type)
{
    return type >= WIRE_HELLO_ACK || type == WIRE_FILE_DATA;
}

/* Hand out the whole frames in rx[0..n); keep the rest. */
static void parse(struct link *l, size_t n)
{
    size_t at = 0;
    struct wire_header h;
    while (n - at >= WIRE_HEADER && !l->closed && !l->broken) {
        if (wire_header_get(rx + at, &h) < 0 || !from_agent(h.type)) {
            log_warn("an agent sent a malformed frame");
            broke(l);
            return;
        }
        if (n - at - WIRE_HEADER < h.length)
            break;
        if (!take_frame(l, &h, rx + at + WIRE_HEADER)) {
            broke(l);
            return;
        }
        at += WIRE_HEADER + h.length;
    }
    if (n > at)
        buf_add(&l->in, rx + at, n - at);
}

static void receive(struct link *l)
{
    size_t have = l->in.len;
    memcpy(rx, l->in.p, have);
    ssize_t n = recv(l->fd, rx + have, sizeof rx - have, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        broke(l);
        return;
    }
    buf_release(&l->in);
    parse(l, have + (size_t)n);
}

static int on_io(sd_event_source *s, int fd, uint32_t events, void *arg)
{
    (void)s;
    (void)fd;
    struct link *l = arg;
    l->busy = true;
    if (events & EPOLLOUT)
        write_queued(l);
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) && !l->closed && !l->broken)
        receive(l);
    l->busy = false;
    if (l->closed)
        destroy(l);
    return 0;
}

/* connect() to a socket that is held by descriptor, so that its name cannot be swapped. */
static int connect_beneath(const char *dir_path, int *ret_fd, struct err *e)
{
    _cleanup_close_ int dir = open(dir_path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (dir < 0)
        return err_sys(e, "cannot open the socket directory %s", dir_path);
    _cleanup_close_ int at = openat(dir, WIRE_SOCKET, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    struct stat st;
    if (at < 0 && errno == ENOENT)
        return err_set(e, ERR_NOTFOUND, "the agent does not listen yet");
    if (at < 0 || fstat(at, &st) < 0)
        return err_sys(e, "cannot open the agent's socket");
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, ERR_FORBIDDEN, "the agent's socket was replaced by something else");
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_sys(e, "socket");
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    (void)snprintf(addr.sun_path, sizeof addr.sun_path, "/proc/self/fd/%d", at);
    if (connect(fd, (const struct sockaddr *)&addr, sizeof addr) < 0) {
        if (errno == ECONNREFUSED || errno == EAGAIN)
            return err_set(e, ERR_NOTFOUND, "the agent does not listen yet");
        return err_sys(e, "cannot connect to the agent");
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int check_peer(int fd, pid_t init, struct err *e)
{
    struct ucred cred;
    socklen_t n = sizeof cred;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
        return err_sys(e, "SO_PEERCRED");
    if (cred.pid != init)
        return err_set(e, ERR_FORBIDDEN,
                       "process %d answers on the agent's socket, but the container's init is %d",
                       (int)cred.pid, (int)init);
    return 0;
}

int link_open(struct runner *r, const char *socket_dir, pid_t init, const struct link_events *ev,
              struct link **ret, struct err *e)
{
    _cleanup_close_ int fd = -1;
    if (connect_beneath(socket_dir, &fd, e) < 0 || check_peer(fd, init, e) < 0)
        return -1;
    return link_begin(r, TAKE_FD(fd), ev, ret, e);
}

int link_begin(struct runner *r, int fd, const struct link_events *ev, struct link **ret,
               struct err *e)
{
    struct link *l = xcalloc(1, sizeof *l);
    l->r = r;
    l->ev = *ev;
    l->serial = ++serials;
    l->next_stream = 1;
    buf_init(&l->in, WIRE_HEADER + WIRE_MAX_PAYLOAD);
    buf_init(&l->join, WIRE_MAX_MESSAGE);
    buf_init(&l->out, LINK_MAX_QUEUE);
    l->fd = fd;
    int n = sd_event_add_io(r->loop, &l->io, l->fd, EPOLLIN, on_io, l);
    if (n < 0) {
        errno = -n;
        destroy(l);
        return err_sys(e, "cannot watch the agent's socket");
    }
    unsigned char hello[WIRE_FIELD(8)];
    size_t len = wire_number_put(hello, WT_VERSION, WIRE_VERSION);
    (void)link_send(l, WIRE_HELLO, 0, 0, hello, len);
    *ret = l;
    return 0;
}
