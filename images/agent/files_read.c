#include "images/agent/files.h"
#include "images/agent/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct file_read {
    struct file_op op;
    int fd;
    uint64_t at, left;
};

static void read_end(struct file_op *op)
{
    struct file_read *r = CONTAINER_OF(op, struct file_read, op);
    close(r->fd);
    free(r);
}

/* One frame. The size is not believed: files of /proc say 0, others grow or shrink meanwhile. */
static bool read_emit(struct producer *p, struct batch *b)
{
    struct file_read *r = CONTAINER_OF(p, struct file_read, op.out);
    size_t want = r->left < WIRE_MAX_PAYLOAD ? (size_t)r->left : WIRE_MAX_PAYLOAD;
    unsigned char *to = sender_payload(want);
    ssize_t n = to ? pread(r->fd, to, want, (off_t)r->at) : -1;
    (void)b;
    if (n < 0) {
        errno = to ? errno : ENOMEM;
        files_failed(r->op.stream, "cannot read", "the file");
        files_end(&r->op);
        return false;
    }
    r->at += (uint64_t)n;
    r->left -= (uint64_t)n;
    bool last = n == 0 || r->left == 0;
    sender_payload_end(WIRE_FILE_DATA, last ? WIRE_F_EOF : 0, r->op.stream, (size_t)n);
    if (last)
        files_end(&r->op);
    return !last;
}

static void read_start(uint32_t stream, int fd, const struct stat *st, uint64_t at, uint64_t size)
{
    struct file_read *r = size ? calloc(1, sizeof *r) : NULL;
    files_send_stat(stream, st, fd);
    if (!r) {
        close(fd);
        sender_frame(WIRE_FILE_DATA, WIRE_F_EOF, stream, NULL, 0);
        return;
    }
    *r = (struct file_read){
        .op = {.out = {.emit = read_emit}, .end = read_end}, .fd = fd, .at = at, .left = size};
    files_add(&r->op, stream);
    sender_queue(&r->op.out, 0);
}

/* Looks before it opens. A SIZE of 0 asks for the FILE_STAT only, so any kind of file will do. */
static int read_open(const char *path, bool stat_only, struct stat *st, const char **what)
{
    *what = "cannot open";
    int at = open(path, O_PATH | O_CLOEXEC);
    if (at < 0 || fstat(at, st) || stat_only)
        return at;
    int fd = -1;
    if (S_ISREG(st->st_mode)) {
        fd = path_reopen(at, O_RDONLY);
    } else {
        *what = path_kind(st->st_mode);
        errno = S_ISDIR(st->st_mode) ? EISDIR : EINVAL;
    }
    int error = errno;
    close(at);
    errno = error;
    return fd;
}

int files_on_read(const struct frame *f)
{
    struct fields fields;
    char path[PATH_MAX];
    struct stat st = {0};
    const char *what;
    int go = files_begin(f, &fields, path);
    if (go <= 0)
        return go;
    uint64_t size = fields_number(&fields, WT_SIZE, UINT64_MAX);
    uint64_t at = fields_number(&fields, WT_OFFSET, 0);
    int fd = read_open(path, !size, &st, &what);
    if (fd >= 0 && at <= INT64_MAX)
        read_start(f->stream, fd, &st, at, size);
    else if (fd >= 0)
        close(fd);
    if (fd < 0 && st.st_mode && !S_ISREG(st.st_mode))
        sender_failed(f->stream, errno, "%.700s is %s, not a regular file", path, what);
    else if (fd < 0)
        files_failed(f->stream, what, path);
    else if (at > INT64_MAX)
        sender_failed(f->stream, EINVAL, "the offset is out of range");
    return 0;
}
