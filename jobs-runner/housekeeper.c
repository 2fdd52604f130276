#include "jobs-runner/housekeeper.h"

#include "common/layout.h"
#include "common/log.h"

#include <dirent.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/eventfd.h>

struct housekeeper {
    struct runner *r;
    pthread_t thread;
    int wake;
    atomic_bool stop;
    unsigned commits; /* only the loop's thread counts */
};

/* Move the entries of a directory up into the trash and unlink what is no directory. */
static void flatten(int trash, const char *name)
{
    _cleanup_close_ int fd =
        openat(trash, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return;
    int dup_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    DIR *d = dup_fd < 0 ? NULL : fdopendir(dup_fd);
    if (!d) {
        closep(&dup_fd);
        return;
    }
    const struct dirent *ent;
    while ((ent = readdir(d))) {
        if (streq(ent->d_name, ".") || streq(ent->d_name, ".."))
            continue;
        if (unlinkat(fd, ent->d_name, 0) == 0 || errno != EISDIR)
            continue;
        char unique[ULID_LEN + 1];
        ulid_new(unique);
        (void)renameat(fd, ent->d_name, trash, unique);
    }
    (void)closedir(d);
}

/* One round over the trash; returns how many entries went away or were opened up. */
static size_t trash_round(int trash)
{
    int dup_fd = openat(trash, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = dup_fd < 0 ? NULL : fdopendir(dup_fd);
    if (!d) {
        closep(&dup_fd);
        return 0;
    }
    size_t done = 0;
    const struct dirent *ent;
    while ((ent = readdir(d))) {
        if (streq(ent->d_name, ".") || streq(ent->d_name, ".."))
            continue;
        if (unlinkat(trash, ent->d_name, 0) == 0) {
            done++;
            continue;
        }
        flatten(trash, ent->d_name);
        done += unlinkat(trash, ent->d_name, AT_REMOVEDIR) == 0;
    }
    (void)closedir(d);
    return done;
}

void trash_empty(int dir)
{
    while (trash_round(dir) > 0)
        ;
}

typedef void layout(const struct settings *s, struct buf *out);

static void empty_trash(const struct settings *cfg, layout *where)
{
    struct buf path = BUF_INIT(PATH_MAX);
    where(cfg, &path);
    _cleanup_close_ int fd = open(path.p, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    buf_release(&path);
    if (fd >= 0)
        trash_empty(fd);
}

static void *work(void *arg)
{
    struct housekeeper *h = arg;
    _cleanup_db_ struct db db = DB_INIT;
    struct err e = ERR_INIT;
    if (db_open(&db, h->r->cfg->state_db, NULL, 0, &e) < 0) {
        log_err(LOG_LEVEL_ERROR, "housekeeper", &e);
        return NULL;
    }
    while (!atomic_load(&h->stop)) {
        struct pollfd p = {.fd = h->wake, .events = POLLIN};
        (void)poll(&p, 1, -1);
        uint64_t n;
        (void)!read(h->wake, &n, sizeof n);
        if (db_checkpoint(&db, &e) < 0)
            log_err(LOG_LEVEL_WARN, "checkpoint", &e);
        empty_trash(h->r->cfg, layout_trash);
        empty_trash(h->r->cfg, layout_socket_trash);
    }
    return NULL;
}

int housekeeper_new(struct runner *r, struct housekeeper **ret, struct err *e)
{
    struct housekeeper *h = xcalloc(1, sizeof *h);
    h->r = r;
    h->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int n = h->wake < 0 ? errno : pthread_create(&h->thread, NULL, work, h);
    if (n) {
        errno = n;
        closep(&h->wake);
        free(h);
        return err_sys(e, "cannot start the housekeeper");
    }
    *ret = h;
    return 0;
}

struct housekeeper *housekeeper_free(struct housekeeper *h)
{
    if (!h)
        return NULL;
    atomic_store(&h->stop, true);
    housekeeper_wake(h);
    (void)pthread_join(h->thread, NULL);
    closep(&h->wake);
    free(h);
    return NULL;
}

void housekeeper_wake(struct housekeeper *h)
{
    uint64_t one = 1;
    (void)!write(h->wake, &one, sizeof one);
}

void housekeeper_count(struct housekeeper *h, unsigned n)
{
    h->commits += n;
    if (h->commits < HOUSEKEEPER_COMMITS)
        return;
    h->commits = 0;
    housekeeper_wake(h);
}

static int discard(struct runner *r, const char *from, layout *trash, struct err *e)
{
    struct buf to = BUF_INIT(PATH_MAX);
    char unique[ULID_LEN + 1];
    ulid_new(unique);
    trash(r->cfg, &to);
    buf_addf(&to, "/%s", unique);
    int result = 0;
    if (rename(from, to.p) < 0)
        result = errno == ENOENT ? 1 : err_sys(e, "cannot move %s to the trash", from);
    buf_release(&to);
    if (result == 0)
        housekeeper_wake(r->housekeeper);
    return result;
}

int housekeeper_discard(struct runner *r, const char *name, struct err *e)
{
    struct buf from = BUF_INIT(PATH_MAX);
    layout_sandbox_dir(r->cfg, name, &from);
    int result = discard(r, from.p, layout_trash, e);
    buf_release(&from);
    return result;
}

int housekeeper_discard_sockets(struct runner *r, const char *name, struct err *e)
{
    struct buf from = BUF_INIT(PATH_MAX);
    layout_socket_dir(r->cfg, name, &from);
    int result = discard(r, from.p, layout_socket_trash, e);
    buf_release(&from);
    return result;
}
