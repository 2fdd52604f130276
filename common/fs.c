#include "common/fs.h"

static int mkdir_one(const char *path, mode_t mode, struct err *e)
{
    struct stat st;
    if (mkdir(path, mode) == 0)
        return 0;
    if (errno == EEXIST && stat(path, &st) == 0) {
        if (S_ISDIR(st.st_mode))
            return 0;
        errno = ENOTDIR;
    }
    return err_sys(e, "cannot create the directory %s", path);
}

int fs_mkdirs(const char *path, mode_t mode, struct err *e)
{
    _cleanup_free_ char *copy = xstrdup(path);
    for (char *p = copy + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        if (mkdir_one(copy, 0755, e) < 0)
            return -1;
        *p = '/';
    }
    return mkdir_one(copy, mode, e);
}

int fs_mkdirs_for(const char *file, struct err *e)
{
    const char *slash = strrchr(file, '/');
    if (!slash || slash == file)
        return 0;
    _cleanup_free_ char *dir = xstrndup(file, (size_t)(slash - file));
    return fs_mkdirs(dir, 0700, e);
}

static int read_fd(int fd, const char *path, struct buf *out, struct err *e)
{
    for (;;) {
        char chunk[16384];
        ssize_t n = read(fd, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_sys(e, "cannot read %s", path);
        if (n == 0)
            break;
        buf_add(out, chunk, (size_t)n);
    }
    if (buf_bad(out))
        return err_set(e, ERR_LIMIT, "%s is larger than %zu bytes", path, out->max);
    return 0;
}

int fs_read(const char *path, struct buf *out, struct err *e)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "cannot open %s", path);
    return read_fd(fd, path, out, e);
}

int fs_read_secret(const char *path, struct buf *out, struct err *e)
{
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(e, "cannot open %s", path);
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_sys(e, "cannot stat %s", path);
    if (st.st_mode & (S_IRWXG | S_IRWXO))
        return err_set(e, ERR_FORBIDDEN, "%s may be read by others: run chmod 600 on it", path);
    return read_fd(fd, path, out, e);
}

int fs_fifo(const char *path, struct err *e)
{
    if (mkfifo(path, 0600) == 0)
        return 0;
    struct stat st;
    if (errno == EEXIST && lstat(path, &st) == 0 && S_ISFIFO(st.st_mode))
        return 0;
    errno = EEXIST;
    return err_sys(e, "cannot create the FIFO %s", path);
}

int fs_write_all(int fd, const void *p, size_t n, struct err *e)
{
    const char *at = p;
    while (n) {
        ssize_t w = write(fd, at, n);
        if (w < 0 && errno == EINTR)
            continue;
        if (w < 0)
            return err_sys(e, "write");
        at += w;
        n -= (size_t)w;
    }
    return 0;
}

int fs_program_dir(struct buf *out, struct err *e)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0)
        return err_sys(e, "cannot read /proc/self/exe");
    path[n] = '\0';
    char *slash = strrchr(path, '/');
    check(slash);
    buf_add(out, path, (size_t)(slash - path));
    return 0;
}
