#include "fcgi/files.h"

#include "common/clock.h"

#include <dirent.h>

#define PAGE_BYTES (256u << 10) /* a page ends when its JSON is larger */

/* Names of one directory, sorted. */
struct names {
    struct buf text; /* one after the other, each with its NUL */
    const char **at;
    size_t n;
};

struct lister {
    const struct files_list *how;
    struct jw *w;
    struct buf path; /* of the directory being listed, with a final slash, relative to the start */
    struct buf *next;
    struct buf last; /* the entry written last */
    size_t start;    /* length of the output before the first entry */
    int64_t count;
    struct err *e;
};

enum { LIST_ALL = 0, LIST_PAGE_FULL = 1 }; /* besides -1 */

static void names_release(struct names *n)
{
    buf_release(&n->text);
    free(n->at);
}

static int by_bytes(const void *a, const void *b)
{
    const char *const *x = a, *const *y = b;
    return strcmp(*x, *y);
}

static void sort_names(struct names *n)
{
    n->at = xcalloc(n->n + 1, sizeof *n->at);
    const char *p = n->text.p;
    for (size_t i = 0; i < n->n; i++, p += strlen(p) + 1)
        n->at[i] = p;
    qsort(n->at, n->n, sizeof *n->at, by_bytes);
}

/* Takes the descriptor over. */
static int read_names(int fd, struct names *n, struct err *e)
{
    DIR *d = fdopendir(fd);
    if (!d) {
        closep(&fd);
        return err_sys(e, "cannot read a directory");
    }
    for (struct dirent *x; (x = readdir(d));)
        if (!streq(x->d_name, ".") && !streq(x->d_name, "..")) {
            buf_add(&n->text, x->d_name, strlen(x->d_name) + 1);
            n->n++;
        }
    (void)closedir(d);
    if (buf_bad(&n->text)) {
        err_set(e, ERR_LIMIT, "the directory has too many entries");
        return err_fix(e, "limit", "use exec with find and a pattern");
    }
    sort_names(n);
    return 0;
}

/* Order of a walk that lists a directory right before what is in it. */
static int walk_order(const char *a, const char *b)
{
    while (*a && *a == *b) {
        a++;
        b++;
    }
    int x = !*a ? 0 : *a == '/' ? 1 : (unsigned char)*a + 2;
    int y = !*b ? 0 : *b == '/' ? 1 : (unsigned char)*b + 2;
    return x - y;
}

static bool is_inside(const char *path, const char *dir)
{
    size_t n = strlen(dir);
    return strncmp(path, dir, n) == 0 && (!path[n] || path[n] == '/');
}

static void write_target(struct jw *w, int dir, const char *name)
{
    char target[PATH_MAX];
    struct buf shown = BUF_INIT(4 * PATH_MAX);
    ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
    if (n < 0)
        return;
    target[n] = '\0';
    (void)files_escape(target, &shown);
    jw_kstring(w, "target", shown.p);
    buf_release(&shown);
}

static void write_entry(struct lister *l, int dir, const char *name, const struct stat *st)
{
    char text[32];
    struct buf shown = BUF_INIT(4 * PATH_MAX * FILES_DEPTH_MAX);
    bool escaped = files_escape(l->last.p, &shown);
    jw_object(l->w);
    jw_kstring(l->w, "name", shown.p);
    if (escaped)
        jw_kbool(l->w, "escaped", true);
    jw_kstring(l->w, "type", files_type(st->st_mode));
    jw_kint(l->w, "size", st->st_size);
    (void)snprintf(text, sizeof text, "%04o", st->st_mode & 07777u);
    jw_kstring(l->w, "mode", text);
    jw_kstring(l->w, "mtime",
               clock_iso(st->st_mtim.tv_sec * 1000LL + st->st_mtim.tv_nsec / 1000000, text));
    if (S_ISLNK(st->st_mode))
        write_target(l->w, dir, name);
    jw_end_object(l->w);
    l->count++;
    buf_release(&shown);
}

static int list_dir(struct lister *l, int fd, int depth);

/* A directory that is gone, or no directory any more, is passed over. */
static int descend(struct lister *l, int dir, const char *name, int depth)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0 || depth >= FILES_DEPTH_MAX) {
        closep(&fd);
        return LIST_ALL;
    }
    size_t n = l->path.len;
    buf_addf(&l->path, "%s/", name);
    int r = list_dir(l, fd, depth + 1);
    l->path.len = n;
    l->path.p[n] = '\0';
    return r;
}

static int page_full(struct lister *l, const char *last)
{
    buf_clear(l->next);
    buf_adds(l->next, last);
    return LIST_PAGE_FULL;
}

static int list_entry(struct lister *l, int dir, const char *name, int depth)
{
    struct stat st;
    struct buf path = BUF_INIT(PATH_MAX * FILES_DEPTH_MAX);
    buf_addf(&path, "%s%s", l->path.p, name);
    const char *cursor = l->how->cursor;
    bool before = cursor && walk_order(path.p, cursor) <= 0;
    bool skip = before && (!l->how->recursive || !is_inside(cursor, path.p));
    if (skip || fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        buf_release(&path);
        return LIST_ALL;
    }
    int r = LIST_ALL;
    if (!before) {
        if (l->count >= l->how->limit || l->w->out->len - l->start > PAGE_BYTES) {
            r = page_full(l, l->last.p);
        } else {
            buf_clear(&l->last);
            buf_add(&l->last, path.p, path.len);
            write_entry(l, dir, name, &st);
        }
    }
    buf_release(&path);
    if (r == LIST_ALL && l->how->recursive && S_ISDIR(st.st_mode))
        r = descend(l, dir, name, depth);
    return r;
}

/* Takes the descriptor over. */
static int list_dir(struct lister *l, int fd, int depth)
{
    struct names n = {.text = BUF_INIT(FILES_NAMES_MAX)};
    _cleanup_close_ int dir = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    int r = read_names(fd, &n, l->e);
    for (size_t i = 0; r == LIST_ALL && dir >= 0 && i < n.n; i++)
        r = list_entry(l, dir, n.at[i], depth);
    names_release(&n);
    return r;
}

int files_list(int ws, const char *rel, const struct files_list *how, struct jw *w,
               struct buf *next, struct err *e)
{
    int fd = -1;
    struct stat st;
    int r = files_open(ws, rel, true, &fd, &st, e);
    if (r != FILES_OK)
        return r;
    struct lister l = {.how = how, .w = w, .next = next, .start = w->out->len, .e = e};
    buf_init(&l.path, PATH_MAX * FILES_DEPTH_MAX);
    buf_init(&l.last, PATH_MAX * FILES_DEPTH_MAX);
    r = list_dir(&l, fd, 1);
    buf_release(&l.path);
    buf_release(&l.last);
    return r < 0 ? -1 : FILES_OK;
}
