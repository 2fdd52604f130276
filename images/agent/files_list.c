#include "images/agent/files.h"
#include "images/agent/names.h"
#include "images/agent/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE_DEFAULT   1000u
#define PAGE_MAX       10000u
#define DEPTH_MAX      64    /* deeper directories are listed, but not entered */
#define NAMES_MAX      1024u /* names of one directory kept at a time */
#define ENTRIES_A_STEP 64

/* One open directory on the way down. */
struct level {
    int fd;
    size_t path_length; /* of the directory's own name in file_list.path */
    bool scanned, scanning;
    size_t next;
    struct names names;
    char after[NAME_MAX + 1]; /* the last name that was passed */
};

struct file_list {
    struct file_op op;
    bool recursive;
    uint64_t left; /* entries of this page still to send */
    size_t depth;
    struct level *level[DEPTH_MAX];
    size_t last_length;
    char path[PATH_MAX]; /* of the entry at hand, relative to the listed directory */
    char last[PATH_MAX]; /* of the last entry sent */
};

static void level_pop(struct file_list *l)
{
    struct level *v = l->level[--l->depth];
    close(v->fd);
    names_release(&v->names);
    free(v);
}

static void list_end(struct file_op *op)
{
    struct file_list *l = CONTAINER_OF(op, struct file_list, op);
    while (l->depth)
        level_pop(l);
    free(l);
}

/* Takes the descriptor. */
static int level_push(struct file_list *l, int fd, size_t path_length, const char *after, size_t n)
{
    struct level *v = fd < 0 || l->depth == DEPTH_MAX ? NULL : calloc(1, sizeof *v);
    if (!v || n > NAME_MAX) {
        if (fd >= 0)
            close(fd);
        free(v);
        return -1;
    }
    v->fd = fd;
    v->path_length = path_length;
    memcpy(v->after, after, n);
    l->level[l->depth++] = v;
    return 0;
}

static int open_below(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

/* Put a name behind the level's own path; the length of the whole, or 0 when it is too long. */
static size_t list_name(struct file_list *l, const struct level *v, const char *name, size_t n)
{
    size_t at = v->path_length;
    if (at + 1 + n >= sizeof l->path)
        return 0;
    if (at)
        l->path[at++] = '/';
    memcpy(l->path + at, name, n);
    l->path[at + n] = 0;
    return at + n;
}

/*
 * The cursor is the path of the last entry of the page before. Its directories are entered again,
 * each positioned after the name that led on, as far as they still exist.
 */
static void list_resume(struct file_list *l, const char *cursor)
{
    for (const char *p = cursor; l->recursive && *p;) {
        size_t n = strcspn(p, "/");
        const char *rest = p[n] ? p + n + 1 : p + n;
        struct level *v = l->level[l->depth - 1];
        size_t length = list_name(l, v, p, n);
        if (!length || level_push(l, open_below(v->fd, l->path + length - n), length, rest,
                                  strcspn(rest, "/")))
            return;
        p = rest;
    }
}

static void list_send(struct file_list *l, const struct level *v, const char *name,
                      const struct stat *st, size_t length)
{
    unsigned char b[MSG_MAX];
    char target[PATH_MAX];
    struct msg m;
    msg_begin(&m, b, sizeof b);
    msg_bytes(&m, WT_NAME, l->path, length);
    msg_number(&m, WT_FTYPE, (unsigned char)path_letter(st->st_mode));
    msg_number(&m, WT_SIZE, (uint64_t)st->st_size);
    msg_number(&m, WT_MODE, st->st_mode & 07777u);
    msg_number(&m, WT_MTIME_NS,
               (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec);
    ssize_t n = S_ISLNK(st->st_mode) ? readlinkat(v->fd, name, target, sizeof target) : -1;
    if (n >= 0)
        msg_bytes(&m, WT_TARGET, target, (size_t)n);
    sender_msg(&m, WIRE_FILE_ENTRY, 0, l->op.stream);
    memcpy(l->last, l->path, length);
    l->last_length = length;
}

static void list_finish(struct file_list *l, bool more)
{
    unsigned char b[MSG_MAX];
    struct msg m;
    msg_begin(&m, b, sizeof b);
    if (more)
        msg_bytes(&m, WT_CURSOR, l->last, l->last_length);
    sender_msg(&m, WIRE_FILE_END, 0, l->op.stream);
    files_end(&l->op);
}

/* Make the level's next names known. Returns false while the scan has to go on. */
static bool level_ready(struct level *v)
{
    if (!v->scanning && (v->next < v->names.count || (v->scanned && !v->names.more)))
        return true;
    if (!v->scanning && names_begin(&v->names, v->fd, NAMES_MAX)) {
        v->scanned = true;
        return true;
    }
    v->scanning = names_scan(&v->names, v->fd, v->after);
    v->scanned = !v->scanning;
    v->next = 0;
    return v->scanned;
}

enum step { STEP_GO_ON, STEP_LATER, STEP_FINISHED };

static enum step list_entry(struct file_list *l, struct level *v)
{
    const char *name = names_get(&v->names, v->next++);
    struct stat st;
    size_t n = strlen(name);
    memcpy(v->after, name, n + 1);
    size_t length = list_name(l, v, name, n);
    if (!length || fstatat(v->fd, name, &st, AT_SYMLINK_NOFOLLOW))
        return STEP_GO_ON; /* it vanished meanwhile */
    if (!l->left) {
        list_finish(l, true);
        return STEP_FINISHED;
    }
    l->left--;
    list_send(l, v, name, &st, length);
    if (l->recursive && S_ISDIR(st.st_mode))
        (void)level_push(l, open_below(v->fd, name), length, "", 0);
    return STEP_GO_ON;
}

static enum step list_step(struct file_list *l)
{
    if (!l->depth) {
        list_finish(l, false);
        return STEP_FINISHED;
    }
    struct level *v = l->level[l->depth - 1];
    if (!level_ready(v))
        return STEP_LATER;
    if (v->next < v->names.count)
        return list_entry(l, v);
    level_pop(l);
    return STEP_GO_ON;
}

static bool list_emit(struct producer *p, struct batch *b)
{
    struct file_list *l = CONTAINER_OF(p, struct file_list, op.out);
    enum step s = STEP_GO_ON;
    (void)b;
    for (int i = 0; i < ENTRIES_A_STEP && s == STEP_GO_ON; i++)
        s = list_step(l);
    return s != STEP_FINISHED;
}

int files_on_list(const struct frame *f)
{
    struct fields fields;
    char path[PATH_MAX], cursor[PATH_MAX] = "";
    int go = files_begin(f, &fields, path);
    if (go <= 0)
        return go;
    (void)fields_string(&fields, WT_CURSOR, cursor, sizeof cursor);
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC);
    struct file_list *l = fd < 0 ? NULL : calloc(1, sizeof *l);
    if (!l || level_push(l, fd, 0, cursor, strcspn(cursor, "/"))) {
        files_failed(f->stream, "cannot list", path);
        free(l);
        return 0;
    }
    uint64_t page = fields_number(&fields, WT_SIZE, PAGE_DEFAULT);
    l->left = page && page < PAGE_MAX ? page : PAGE_MAX;
    l->recursive = fields_number(&fields, WT_RECURSIVE, 0) != 0;
    l->op.end = list_end;
    l->op.out.emit = list_emit;
    list_resume(l, cursor);
    files_add(&l->op, f->stream);
    sender_queue(&l->op.out, 0);
    return 0;
}
