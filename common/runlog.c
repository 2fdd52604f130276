#include "common/runlog.h"

#include "common/fs.h"

#include <sys/uio.h>

#define MAGIC 0x31474f4c50434d53ull /* "SMCPLOG1" */

struct header {
    uint64_t magic;
    uint64_t head;
    uint64_t ring;
    uint64_t total;
    uint64_t claim;
    uint64_t spare[3];
};
_Static_assert(sizeof(struct header) == RUNLOG_HEADER, "the header has a fixed size");

static int read_header(struct runlog *l, struct err *e)
{
    struct header h;
    ssize_t n = pread(l->fd, &h, sizeof h, 0);
    if (n < 0)
        return err_sys(e, "cannot read a log header");
    if (n != (ssize_t)sizeof h || h.magic != MAGIC || !h.ring || h.head > INT64_MAX / 2 ||
        h.ring > INT64_MAX / 2)
        return err_set(e, ERR_INTERNAL, "a log file is damaged");
    l->head = h.head;
    l->ring = h.ring;
    l->total = h.total;
    l->claim = h.claim;
    return 0;
}

static int write_number(const struct runlog *l, uint64_t v, off_t where, struct err *e)
{
    ssize_t n = pwrite(l->fd, &v, sizeof v, where);
    return n == (ssize_t)sizeof v ? 0 : err_sys(e, "cannot write a log header");
}

static int write_total(struct runlog *l, struct err *e)
{
    return write_number(l, l->total, offsetof(struct header, total), e);
}

static int write_claim(struct runlog *l, uint64_t total, struct err *e)
{
    if (total <= l->head + l->ring || total <= l->claim)
        return 0; /* nothing that is kept will be overwritten */
    l->claim = total;
    return write_number(l, total, offsetof(struct header, claim), e);
}

static int create(struct runlog *l, int64_t max, struct err *e)
{
    struct header h = {.magic = MAGIC};
    h.head = (uint64_t)max / 4;
    h.ring = (uint64_t)max - h.head;
    if (pwrite(l->fd, &h, sizeof h, 0) != (ssize_t)sizeof h)
        return err_sys(e, "cannot write a log header");
    return 0;
}

int runlog_open_write(struct runlog *ret, const char *path, int64_t max, struct err *e)
{
    struct runlog l = RUNLOG_INIT;
    l.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (l.fd < 0 && errno == ENOENT) {
        if (fs_mkdirs_for(path, e) < 0)
            return -1;
        l.fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    }
    if (l.fd < 0)
        return err_sys(e, "cannot open the log %s", path);
    struct stat st;
    int r = fstat(l.fd, &st) < 0 ? err_sys(e, "fstat") : 0;
    if (r == 0 && st.st_size < RUNLOG_HEADER)
        r = create(&l, max, e);
    if (r == 0)
        r = read_header(&l, e);
    if (r < 0) {
        runlog_close(&l);
        return -1;
    }
    *ret = l;
    return 0;
}

int runlog_open_read(struct runlog *ret, const char *path, struct err *e)
{
    struct runlog l = RUNLOG_INIT;
    l.fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (l.fd < 0 && errno == ENOENT)
        return err_set(e, ERR_NOTFOUND, "no log is kept for this run");
    if (l.fd < 0)
        return err_sys(e, "cannot open the log %s", path);
    if (read_header(&l, e) < 0) {
        runlog_close(&l);
        return -1;
    }
    *ret = l;
    return 0;
}

void runlog_close(struct runlog *l)
{
    closep(&l->fd);
    l->fd = -1;
}

/* Place of an offset in the file, and how many bytes follow it there without a break. */
static uint64_t place(const struct runlog *l, uint64_t offset, uint64_t *ret_room)
{
    if (offset < l->head) {
        *ret_room = l->head - offset;
        return RUNLOG_HEADER + offset;
    }
    uint64_t in_ring = (offset - l->head) % l->ring;
    *ret_room = l->ring - in_ring;
    return RUNLOG_HEADER + l->head + in_ring;
}

int runlog_append(struct runlog *l, const void *p, size_t n, struct err *e)
{
    const char *from = p;
    uint64_t at = l->total;
    if (write_claim(l, at + n, e) < 0)
        return -1;
    while (n) {
        uint64_t room;
        uint64_t where = place(l, at, &room);
        ssize_t w = pwrite(l->fd, from, (size_t)MIN((uint64_t)n, room), (off_t)where);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return err_sys(e, "cannot write a log");
        from += w;
        at += (uint64_t)w;
        n -= (size_t)w;
    }
    l->total = at;
    return write_total(l, e);
}

int runlog_skip(struct runlog *l, uint64_t n, struct err *e)
{
    l->total += n;
    return write_total(l, e);
}

int runlog_refresh(struct runlog *l, struct err *e)
{
    return read_header(l, e);
}

uint64_t runlog_first_kept(const struct runlog *l, uint64_t offset)
{
    if (offset < l->head)
        return MIN(offset, l->total);
    uint64_t reached = MAX(l->total, l->claim);
    uint64_t ring_start = reached > l->head + l->ring ? reached - l->ring : l->head;
    return MIN(MAX(offset, ring_start), MAX(l->total, offset));
}

/* Of `added` bytes just read from `offset`: how many no writer can have overwritten meanwhile. */
static ssize_t still_kept(const struct runlog *l, uint64_t offset, size_t added, struct err *e)
{
    struct runlog now = *l;
    uint64_t in_ring = MAX(offset, l->head);
    if (offset + added <= in_ring)
        return (ssize_t)added;
    if (read_header(&now, e) < 0)
        return -1;
    return (ssize_t)(runlog_first_kept(&now, in_ring) == in_ring ? added : in_ring - offset);
}

ssize_t runlog_read(const struct runlog *l, uint64_t offset, size_t n, struct buf *out,
                    struct err *e)
{
    const uint64_t start = offset;
    size_t added = 0;
    if (runlog_first_kept(l, offset) != offset)
        return 0;
    while (added < n && offset < l->total) {
        uint64_t room;
        uint64_t where = place(l, offset, &room);
        bool in_head = offset < l->head;
        size_t want = (size_t)MIN(MIN((uint64_t)(n - added), room), l->total - offset);
        char *at = buf_reserve(out, want);
        if (!at)
            return err_set(e, ERR_LIMIT, "a log part is larger than %zu bytes", out->max);
        ssize_t r = pread(l->fd, at, want, (off_t)where);
        if (r < 0)
            return err_sys(e, "cannot read a log");
        if (r == 0)
            break; /* counted by runlog_skip, never written */
        buf_commit(out, (size_t)r);
        added += (size_t)r;
        offset += (uint64_t)r;
        if (in_head && offset == l->head && runlog_first_kept(l, offset) != offset)
            break;
    }
    ssize_t kept = still_kept(l, start, added, e);
    buf_cut(out, out->len - (added - (size_t)MAX(kept, 0)));
    return kept;
}
