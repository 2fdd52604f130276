#include "images/agent/files.h"
#include "images/agent/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/sendfile.h>
#include <unistd.h>

struct file_write {
    struct file_op op;
    int dir; /* the directory of the file */
    int fd;  /* what is written to */
    bool exists;
    mode_t mode;
    uid_t uid;
    gid_t gid;
    char temp[40]; /* "" when appending */
    char name[NAME_MAX + 1];
    char path[PATH_MAX]; /* for texts */
};

static void write_end(struct file_op *op)
{
    struct file_write *w = CONTAINER_OF(op, struct file_write, op);
    if (w->temp[0])
        (void)unlinkat(w->dir, w->temp, 0);
    if (w->fd >= 0)
        close(w->fd);
    if (w->dir >= 0)
        close(w->dir);
    free(w);
}

static int write_split(struct file_write *w)
{
    char *slash = strrchr(w->path, '/');
    const char *name = slash ? slash + 1 : w->path;
    errno = ENAMETOOLONG;
    if (strlen(name) > NAME_MAX)
        return -1;
    errno = EISDIR;
    if (!*name || !strcmp(name, ".") || !strcmp(name, ".."))
        return -1;
    memcpy(w->name, name, strlen(name) + 1);
    /* With its slash, so that the root directory needs no special case. */
    char dir[PATH_MAX];
    size_t n = slash ? (size_t)(slash - w->path) + 1 : 0;
    memcpy(dir, w->path, n);
    dir[n] = 0;
    w->dir = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return w->dir < 0 ? -1 : 0;
}

/* What is there already decides mode and owner, and must be a regular file. */
static int write_look(struct file_write *w, mode_t mode)
{
    struct stat st;
    w->mode = mode;
    if (fstatat(w->dir, w->name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? 0 : -1;
    if (!S_ISREG(st.st_mode)) {
        errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
        sender_failed(w->op.stream, errno, "%.700s is %s, not a regular file", w->path,
                      path_kind(st.st_mode));
        return 1;
    }
    w->exists = true;
    w->mode = st.st_mode & 07777u;
    w->uid = st.st_uid;
    w->gid = st.st_gid;
    return 0;
}

static int write_open_temp(struct file_write *w)
{
    uint64_t r = 0;
    (void)!getrandom(&r, sizeof r, 0);
    snprintf(w->temp, sizeof w->temp, ".smcp-%016llx", (unsigned long long)r);
    w->fd = openat(w->dir, w->temp, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (w->fd < 0)
        w->temp[0] = 0;
    return w->fd < 0 ? -1 : 0;
}

static int write_open_append(struct file_write *w)
{
    struct stat st;
    w->fd = openat(w->dir, w->name,
                   O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                   0600);
    if (w->fd < 0 || fstat(w->fd, &st))
        return -1;
    errno = EINVAL;
    return !S_ISREG(st.st_mode) || (!w->exists && fchmod(w->fd, w->mode)) ? -1 : 0;
}

static int write_open(struct file_write *w, const struct fields *f)
{
    if (path_follow(w->path))
        return -1;
    if (fields_number(f, WT_PARENTS, 0) && path_make_parents(w->path))
        return -1;
    if (write_split(w))
        return -1;
    int look = write_look(w, (mode_t)fields_number(f, WT_MODE, 0644) & 07777u);
    if (look)
        return look;
    return fields_number(f, WT_APPEND, 0) ? write_open_append(w) : write_open_temp(w);
}

int files_on_write(const struct frame *f)
{
    struct fields fields;
    char path[PATH_MAX];
    int go = files_begin(f, &fields, path);
    if (go <= 0)
        return go;
    struct file_write *w = calloc(1, sizeof *w);
    if (!w) {
        files_failed(f->stream, "cannot write", path);
        return 0;
    }
    w->op.end = write_end;
    w->dir = w->fd = -1;
    memcpy(w->path, path, strlen(path) + 1);
    files_add(&w->op, f->stream);
    int bad = write_open(w, &fields);
    if (bad < 0)
        files_failed(f->stream, "cannot write", w->path);
    if (bad)
        files_end(&w->op);
    return 0;
}

/* A file that is a mount point (Docker's /etc/hosts) cannot be replaced, only overwritten. */
static int write_over(struct file_write *w)
{
    int fd = openat(w->dir, w->name, O_WRONLY | O_TRUNC | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return -1;
    off_t at = 0;
    ssize_t n;
    while ((n = sendfile(fd, w->fd, &at, 1u << 20)) > 0)
        continue;
    int error = errno;
    close(w->fd);
    w->fd = fd;
    errno = error;
    return n < 0 ? -1 : 0;
}

static int write_finish(struct file_write *w)
{
    if (!w->temp[0])
        return 0;
    /* The owner first: changing it clears the set-user-ID bit. Not being allowed to is no harm. */
    if (w->exists)
        (void)!fchown(w->fd, w->uid, w->gid);
    if (fchmod(w->fd, w->mode))
        return -1;
    if (!renameat(w->dir, w->temp, w->dir, w->name)) {
        w->temp[0] = 0;
        return 0;
    }
    return errno == EBUSY ? write_over(w) : -1;
}

static int write_all(int fd, const unsigned char *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = write(fd, p + at, n - at);
        if (k < 0 && errno != EINTR)
            return -1;
        at += k > 0 ? (size_t)k : 0;
    }
    return 0;
}

int files_on_data(const struct frame *f)
{
    struct file_op *op = files_find(f->stream);
    if (!op || op->end != write_end)
        return 0; /* the operation failed while these bytes were on their way */
    struct file_write *w = CONTAINER_OF(op, struct file_write, op);
    bool last = f->flags & WIRE_F_EOF;
    struct stat st;
    if (write_all(w->fd, f->p, f->n) || (last && (write_finish(w) || fstat(w->fd, &st)))) {
        files_failed(f->stream, "cannot write", w->path);
        files_end(op);
    } else if (last) {
        files_send_stat(f->stream, &st, w->fd);
        files_end(op);
    }
    return 0;
}
