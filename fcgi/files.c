#include "fcgi/files.h"

#include "common/fs.h"
#include "common/layout.h"
#include "common/text.h"

#include <linux/openat2.h>
#include <sys/random.h>
#include <sys/syscall.h>

#define MODE_MASK 0777u

/* --- paths and names ------------------------------------------------------------------------ */

int files_workspace(const struct settings *s, const char *sandbox, struct err *e)
{
    struct buf path = BUF_INIT(PATH_MAX);
    layout_workspace(s, sandbox, &path);
    int fd = open(path.p, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int saved = errno;
    buf_release(&path);
    if (fd >= 0)
        return fd;
    errno = saved;
    if (errno == ENOENT)
        return err_set(e, ERR_NOTFOUND, "the sandbox \"%s\" has no workspace", sandbox);
    return err_sys(e, "cannot open the workspace of \"%s\"", sandbox);
}

int files_path(const char *arg, struct buf *ret, struct err *e)
{
    static const char root[] = "/workspace";
    size_t n = sizeof root - 1;
    if (strlen(arg) >= PATH_MAX - 64) {
        err_set(e, ERR_INVALID, "the path is longer than %d bytes", PATH_MAX - 64);
        return err_fix(e, "invalid_argument", "use a shorter path");
    }
    if (*arg == '/') {
        arg += strspn(arg, "/") - 1;
        if (strncmp(arg, root, n) != 0 || (arg[n] && arg[n] != '/'))
            return FILES_ELSEWHERE;
        arg += n;
    }
    arg += strspn(arg, "/");
    buf_adds(ret, *arg ? arg : ".");
    return FILES_OK;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool files_unescape(const char *text, struct buf *out)
{
    bool changed = false;
    if (!strchr(text, '\\'))
        return false;
    for (const char *p = text; *p; p++) {
        int high = *p == '\\' && p[1] == 'x' ? hex(p[2]) : -1, low = high >= 0 ? hex(p[3]) : -1;
        if (low >= 0 && (high | low)) {
            buf_addc(out, (char)(high * 16 + low));
            p += 3;
            changed = true;
        } else if (*p == '\\' && p[1] == '\\') {
            buf_addc(out, *p++);
            changed = true;
        } else {
            buf_addc(out, *p);
        }
    }
    return changed;
}

bool files_escape(const char *name, struct buf *out)
{
    size_t n = strlen(name);
    if (text_utf8_valid(name, n)) {
        buf_add(out, name, n);
        return false;
    }
    for (size_t i = 0; i < n;) {
        size_t len = 1;
        while (len < 4 && i + len < n && ((unsigned char)name[i + len] & 0xc0) == 0x80)
            len++;
        if (!text_utf8_valid(name + i, len)) {
            buf_addf(out, "\\x%02x", (unsigned char)name[i]);
            i++;
            continue;
        }
        if (name[i] == '\\')
            buf_addc(out, '\\');
        buf_add(out, name + i, len);
        i += len;
    }
    return true;
}

void files_show(const char *rel, struct buf *out)
{
    while (strncmp(rel, "./", 2) == 0)
        rel += 2;
    buf_adds(out, "/workspace");
    if (streq(rel, ".") || !*rel)
        return;
    buf_addc(out, '/');
    (void)files_escape(rel, out);
}

const char *files_type(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "file";
    case S_IFDIR:
        return "directory";
    case S_IFLNK:
        return "symlink";
    case S_IFIFO:
        return "fifo";
    case S_IFSOCK:
        return "socket";
    default:
        return "device";
    }
}

/* --- resolving ------------------------------------------------------------------------------ */

/* openat2 beneath the workspace. EAGAIN: something was renamed at the same moment. */
static int beneath(int dir, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = flags | O_CLOEXEC,
                           .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS};
    long fd = -1;
    for (int tries = 0; tries < 64; tries++) {
        fd = syscall(SYS_openat2, dir, path, &how, sizeof how);
        if (fd >= 0 || (errno != EAGAIN && errno != EINTR))
            break;
    }
    return (int)fd;
}

/* What errno says about a path of a client. `rel` may hold anything. */
static int path_error(const char *rel, struct err *e)
{
    static const struct {
        int no;
        enum err_kind kind;
        const char *what, *code, *fix;
    } known[] = {
        {ENOENT, ERR_NOTFOUND, "does not exist", "not_found", "list_files shows what exists"},
        {ENOTDIR, ERR_NOTFOUND, "goes through something that is no directory", "not_found",
         "list_files shows what exists"},
        {EISDIR, ERR_INVALID, "is a directory", "is_directory",
         "name a file; list_files shows the directory"},
        {ENAMETOOLONG, ERR_INVALID, "has a name that is too long", "invalid_path",
         "a name has at most 255 bytes"},
        {ENOSPC, ERR_LIMIT, "cannot be written: the disk is full", "disk_full",
         "delete files in the sandbox, then call again"},
        {EDQUOT, ERR_LIMIT, "cannot be written: the disk quota is used up", "disk_full",
         "delete files in the sandbox, then call again"},
    };
    int no = errno;
    struct buf shown = BUF_INIT(2 * PATH_MAX * 4), cut = BUF_INIT(2048);
    files_show(rel, &shown);
    text_excerpt(&cut, shown.p, shown.len, 300);
    errno = no;
    err_sys(e, "%s", cut.p);
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (known[i].no == no) {
            err_set(e, known[i].kind, "%s %s", cut.p, known[i].what);
            err_fix(e, known[i].code, "%s", known[i].fix);
        }
    buf_release(&shown);
    buf_release(&cut);
    return -1;
}

/* A link that leads out, or too many of them. */
static bool elsewhere(int no)
{
    return no == EXDEV || no == ELOOP || no == EAGAIN;
}

/* The object itself, pinned. Literal path first, then the escaped one. */
static int pin(int ws, const char *rel, uint64_t flags)
{
    int fd = beneath(ws, rel, O_PATH | flags);
    if (fd >= 0 || (errno != ENOENT && errno != ENOTDIR))
        return fd;
    int saved = errno;
    struct buf raw = BUF_INIT(PATH_MAX);
    if (files_unescape(rel, &raw) && !buf_bad(&raw))
        fd = beneath(ws, raw.p, O_PATH | flags);
    else
        errno = saved;
    buf_release(&raw);
    return fd;
}

static int reopen(int pinned, int flags)
{
    char path[40];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", pinned);
    return open(path, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static int wrong_type(const char *rel, mode_t mode, bool dir, struct err *e)
{
    struct buf shown = BUF_INIT(2 * PATH_MAX * 4), cut = BUF_INIT(2048);
    files_show(rel, &shown);
    text_excerpt(&cut, shown.p, shown.len, 300);
    err_set(e, ERR_INVALID, "%s is a %s, not a %s", cut.p, files_type(mode),
            dir ? "directory" : "file");
    buf_release(&shown);
    buf_release(&cut);
    if (dir)
        return err_fix(e, "not_a_directory", "read_text reads a file");
    return err_fix(e, S_ISDIR(mode) ? "is_directory" : "not_a_file",
                   S_ISDIR(mode) ? "list_files shows a directory"
                                 : "use exec for what is no regular file");
}

int files_open(int ws, const char *rel, bool dir, int *ret_fd, struct stat *ret_st, struct err *e)
{
    _cleanup_close_ int pinned = pin(ws, rel, 0);
    if (pinned < 0)
        return elsewhere(errno) ? FILES_ELSEWHERE : path_error(rel, e);
    if (fstat(pinned, ret_st) < 0)
        return path_error(rel, e);
    if (dir ? !S_ISDIR(ret_st->st_mode) : !S_ISREG(ret_st->st_mode))
        return wrong_type(rel, ret_st->st_mode, dir, e);
    *ret_fd = reopen(pinned, O_RDONLY | (dir ? O_DIRECTORY : 0));
    return *ret_fd < 0 ? path_error(rel, e) : FILES_OK;
}

/* --- writing -------------------------------------------------------------------------------- */

/* What is made belongs to whom the directory belongs to, as if the sandbox had made it. */
static void take_owner(int fd, int parent)
{
    struct stat st;
    if (fstat(parent, &st) == 0 && (st.st_uid != geteuid() || st.st_gid != getegid()))
        (void)!fchown(fd, st.st_uid, st.st_gid);
}

/* Make one missing directory beneath `parent`. It may have appeared meanwhile. */
static int make_dir(int parent, const char *name)
{
    if (mkdirat(parent, name, 0755) < 0)
        return errno == EEXIST ? 0 : -1;
    _cleanup_close_ int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0)
        take_owner(fd, parent);
    return 0;
}

/*
 * The directory `path` beneath the workspace, made step by step. Each step resolves the whole
 * prefix again, so that links may be used but never lead out.
 */
static int make_dirs(int ws, const char *path)
{
    _cleanup_free_ char *copy = xstrdup(path);
    _cleanup_close_ int at = beneath(ws, ".", O_PATH | O_DIRECTORY);
    for (char *p = copy; at >= 0 && *p;) {
        char *name = p + strspn(p, "/"), *end = name + strcspn(name, "/");
        char after = *end;
        *end = '\0';
        if (!*name)
            break;
        int next = beneath(ws, copy, O_PATH | O_DIRECTORY);
        if (next < 0 && errno == ENOENT && make_dir(at, name) == 0)
            next = beneath(ws, copy, O_PATH | O_DIRECTORY);
        int saved = errno;
        closep(&at);
        errno = saved;
        at = next;
        *end = after;
        p = end;
    }
    return TAKE_FD(at);
}

/* Split into directory and last name. False: there is no name to write to. */
static bool split(const char *rel, struct buf *dir, const char **ret_name)
{
    const char *slash = strrchr(rel, '/');
    *ret_name = slash ? slash + 1 : rel;
    if (slash)
        buf_add(dir, rel, (size_t)(slash - rel));
    else
        buf_adds(dir, ".");
    return **ret_name && !streq(*ret_name, ".") && !streq(*ret_name, "..");
}

static int write_data(int fd, const struct files_write *w, struct err *e)
{
    return fs_write_all(fd, w->data, w->n, e);
}

static int disk_error(const char *rel, struct err *e)
{
    if (e->sys) {
        errno = e->sys;
        return path_error(rel, e);
    }
    return -1;
}

/* At the end of the existing file that `pinned` holds. */
static int append_to(int pinned, const char *rel, const struct files_write *w, int64_t *ret_size,
                     struct err *e)
{
    struct stat st;
    _cleanup_close_ int fd = reopen(pinned, O_WRONLY | O_APPEND);
    if (fd < 0)
        return path_error(rel, e);
    if (write_data(fd, w, e) < 0)
        return disk_error(rel, e);
    if (w->mode >= 0)
        (void)!fchmod(fd, (mode_t)w->mode);
    if (fstat(fd, &st) < 0)
        return path_error(rel, e);
    *ret_size = st.st_size;
    return FILES_OK;
}

static void random_name(char ret[32])
{
    uint64_t r;
    check(getrandom(&r, sizeof r, 0) == (ssize_t)sizeof r);
    (void)snprintf(ret, 32, ".smcp-%016" PRIx64 ".tmp", r);
}

/* Put the finished file at its place. `tmp`: its name so far, or empty when it has none yet. */
static int publish(int fd, int parent, char *tmp, const char *name)
{
    char self[40];
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    if (!*tmp) {
        if (linkat(AT_FDCWD, self, parent, name, AT_SYMLINK_FOLLOW) == 0)
            return 0;
        if (errno != EEXIST)
            return -1;
        random_name(tmp);
        if (linkat(AT_FDCWD, self, parent, tmp, AT_SYMLINK_FOLLOW) < 0)
            return -1;
    }
    if (renameat(parent, tmp, parent, name) == 0)
        return 0;
    int saved = errno;
    (void)unlinkat(parent, tmp, 0);
    errno = saved;
    return -1;
}

/* A file without a name where the filesystem can, or else one with a temporary name. */
static int create_temporary(int parent, char *ret_tmp)
{
    char self[40];
    (void)snprintf(self, sizeof self, "/proc/self/fd/%d", parent);
    ret_tmp[0] = '\0';
    int fd = open(self, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL))
        return fd;
    random_name(ret_tmp);
    return openat(parent, ret_tmp, O_CREAT | O_EXCL | O_WRONLY | O_NOFOLLOW | O_CLOEXEC, 0600);
}

/* `old`: the file that is replaced, or NULL. */
static int replace(int parent, const char *name, const char *rel, const struct stat *old,
                   const struct files_write *w, struct err *e)
{
    char tmp[32];
    _cleanup_close_ int fd = create_temporary(parent, tmp);
    if (fd < 0)
        return path_error(rel, e);
    mode_t mode = old ? old->st_mode & MODE_MASK : 0644;
    if (w->mode >= 0)
        mode = (mode_t)w->mode;
    int r = write_data(fd, w, e);
    if (r < 0)
        (void)disk_error(rel, e);
    if (r == 0) {
        if (old)
            (void)!fchown(fd, old->st_uid, old->st_gid);
        else
            take_owner(fd, parent);
        (void)!fchmod(fd, mode);
        if (publish(fd, parent, tmp, name) == 0)
            return FILES_OK;
        return path_error(rel, e);
    }
    if (*tmp)
        (void)unlinkat(parent, tmp, 0);
    return -1;
}

static int write_at(int ws, const char *rel, const struct files_write *w, int64_t *ret_size,
                    struct err *e)
{
    struct buf dir = BUF_INIT(PATH_MAX);
    const char *name;
    struct stat st;
    if (!split(rel, &dir, &name)) {
        buf_release(&dir);
        errno = EISDIR;
        return path_error(rel, e);
    }
    _cleanup_close_ int parent = make_dirs(ws, dir.p);
    buf_release(&dir);
    if (parent < 0)
        return elsewhere(errno) ? FILES_ELSEWHERE : path_error(rel, e);
    _cleanup_close_ int old = openat(parent, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (old < 0 && errno != ENOENT)
        return path_error(rel, e);
    if (old >= 0 && fstat(old, &st) < 0)
        return path_error(rel, e);
    /* Through a link a command would write to its target: the sandbox does that. */
    if (old >= 0 && S_ISLNK(st.st_mode))
        return FILES_ELSEWHERE;
    if (old >= 0 && !S_ISREG(st.st_mode))
        return wrong_type(rel, st.st_mode, false, e);
    if (old >= 0 && w->append)
        return append_to(old, rel, w, ret_size, e);
    *ret_size = (int64_t)w->n;
    return replace(parent, name, rel, old >= 0 ? &st : NULL, w, e);
}

static bool exists(int ws, const char *rel)
{
    _cleanup_close_ int fd = beneath(ws, rel, O_PATH | O_NOFOLLOW);
    return fd >= 0;
}

static bool parent_exists(int ws, const char *rel)
{
    struct buf dir = BUF_INIT(PATH_MAX);
    const char *name;
    bool r = split(rel, &dir, &name) && exists(ws, dir.p);
    buf_release(&dir);
    return r;
}

int files_write(int ws, const char *rel, const struct files_write *w, int64_t *ret_size,
                struct err *e)
{
    struct buf raw = BUF_INIT(PATH_MAX);
    const char *target = rel;
    if (files_unescape(rel, &raw) && !buf_bad(&raw) && !exists(ws, rel) &&
        (exists(ws, raw.p) || (!parent_exists(ws, rel) && parent_exists(ws, raw.p))))
        target = raw.p;
    int r = write_at(ws, target, w, ret_size, e);
    buf_release(&raw);
    return r;
}
