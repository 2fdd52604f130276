#include "fcgi/runner.h"

#include "common/clock.h"
#include "common/fs.h"
#include "common/wire.h"
#include "fcgi/queries.h"

#include <dirent.h>
#include <sys/random.h>

#define SWEEP_US  1000000 /* a bell that was missed costs at most this */
#define MARGIN_MS 10000   /* between the wait that was asked for and giving up */

int runner_open(struct runner *r, const struct settings *s, struct db *db, struct err *e)
{
    uint64_t nonce;
    check(getrandom(&nonce, sizeof nonce, 0) == (ssize_t)sizeof nonce);
    *r = (struct runner){.settings = s, .db = db, .reply_fd = -1, .bell_fd = -1};
    (void)snprintf(r->reply_name, sizeof r->reply_name, "%d-%016" PRIx64, getpid(), nonce);
    struct buf path = BUF_INIT(PATH_MAX);
    layout_reply(s, r->reply_name, &path);
    int result = fs_fifo(path.p, e);
    if (result == 0) {
        /* Read and write: the FIFO never reports an end when a runner closes it. */
        r->reply_fd = open(path.p, O_RDWR | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
        if (r->reply_fd < 0)
            result = err_sys(e, "cannot open %s", path.p);
    }
    buf_release(&path);
    return result;
}

void runner_close(struct runner *r)
{
    runner_tidy(r);
    if (r->reply_fd >= 0) {
        struct buf path = BUF_INIT(PATH_MAX);
        layout_reply(r->settings, r->reply_name, &path);
        (void)unlink(path.p);
        buf_release(&path);
    }
    closep(&r->reply_fd);
    closep(&r->bell_fd);
    free(r->done);
    *r = (struct runner)RUNNER_INIT;
}

void runner_request_init(struct runner_request *q)
{
    memset(q, 0, sizeof *q);
    buf_init(&q->result, RUNNER_RESULT_MAX);
    buf_init(&q->progress, 1 << 16);
}

static void unlink_request(struct runner *r, struct runner_request *q)
{
    for (struct runner_request **at = &r->flying; *at; at = &(*at)->next)
        if (*at == q) {
            *at = q->next;
            return;
        }
}

static void row_done(struct runner *r, int64_t id)
{
    if (r->n_done == r->cap_done) {
        r->cap_done = r->cap_done ? r->cap_done * 2 : 8;
        r->done = xrealloc(r->done, r->cap_done * sizeof *r->done);
    }
    r->done[r->n_done++] = id;
}

void runner_taken(struct runner *r, struct runner_request *q)
{
    unlink_request(r, q);
}

void runner_request_release(struct runner *r, struct runner_request *q)
{
    if (q->id) {
        unlink_request(r, q);
        if (q->reply == REPLY_OK || q->reply == REPLY_ERROR)
            row_done(r, q->id);
    }
    buf_release(&q->result);
    buf_release(&q->progress);
    runner_request_init(q);
}

static int delete_done(struct runner *r, struct err *e)
{
    for (size_t i = 0; i < r->n_done; i++)
        if (db_run(r->db, Q_REQUEST_DELETE, e, "i", r->done[i]) < 0)
            return -1;
    r->n_done = 0;
    return 0;
}

void runner_tidy(struct runner *r)
{
    struct err e = ERR_INIT;
    /* The runner is down: the next one may still need the rows as records. */
    if (!r->n_done || !runner_alive(r))
        return;
    (void)!delete_done(r, &e); /* what stays is purged by the runner */
    r->n_done = 0;
}

bool runner_untidy(const struct runner *r)
{
    return r->n_done > 0;
}

/* The doorbell's write end, kept open: opening it for each call would cost more than the write. */
static int bell(struct runner *r)
{
    if (r->bell_fd >= 0)
        return r->bell_fd;
    struct buf path = BUF_INIT(PATH_MAX);
    layout_doorbell(r->settings, &path);
    r->bell_fd = open(path.p, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    buf_release(&path);
    return r->bell_fd;
}

static void bell_close(struct runner *r)
{
    closep(&r->bell_fd);
    r->bell_fd = -1;
}

static bool ring_once(struct runner *r)
{
    int fd = bell(r);
    if (fd < 0)
        return false;
    ssize_t w;
    do
        w = write(fd, "!", 1);
    while (w < 0 && errno == EINTR);
    if (w > 0 || errno == EAGAIN) /* a full FIFO is ringing already */
        return true;
    bell_close(r);
    return false;
}

/* The second try finds a FIFO that was made anew under the same name. */
static bool ring(struct runner *r)
{
    return ring_once(r) || ring_once(r);
}

/* A FIFO without a reader shows as POLLERR at its write end. */
static bool bell_has_reader(int fd)
{
    struct pollfd p = {.fd = fd};
    return poll(&p, 1, 0) == 0;
}

bool runner_alive(struct runner *r)
{
    int fd = bell(r);
    if (fd >= 0 && !bell_has_reader(fd)) {
        bell_close(r);
        fd = bell(r);
    }
    return fd >= 0;
}

static int runner_is_down(struct err *e)
{
    err_set(e, ERR_UNAVAILABLE, "the jobs-runner is not running");
    return err_fix(e, "runner_down",
                   "the owner of the server runs 'make up' on it (or: systemctl "
                   "start jobs-runner); then call again");
}

/*
 * Ids sort by time and are never used again, also after the row is gone: a late answer to an old
 * request must not meet a new one. 64 us a step, 10 bits of chance; a JSON number holds them until
 * the year 2044. Two callers may draw the same one: then the row is not added, and we draw again.
 */
static int64_t new_id(void)
{
    static const int64_t start_us = 1767225600000000; /* 2026-01-01 */
    uint16_t chance;
    check(getrandom(&chance, sizeof chance, 0) == (ssize_t)sizeof chance);
    struct timespec ts;
    (void)clock_gettime(CLOCK_REALTIME, &ts);
    int64_t us = (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
    return MAX(us - start_us, (int64_t)0) / 64 << 10 | (chance & 0x3ff);
}

static int insert_row(struct runner *r, struct runner_request *q, const char *kind,
                      const char *args, int64_t limit, struct err *e)
{
    int64_t now = clock_real_ms();
    for (int tries = 0; tries < 8; tries++) {
        int64_t id = new_id();
        if (db_run(r->db, Q_REQUEST_ADD, e, "itttii", id, kind, args, r->reply_name, now,
                   now + limit) < 0)
            return -1;
        if (db_changes(r->db)) {
            q->id = id;
            return 0;
        }
    }
    return err_set(e, ERR_INTERNAL, "no free request id was found");
}

/* The rows of former requests go in the same transaction: one commit instead of two. */
static int add_row(struct runner *r, struct runner_request *q, const char *kind, const char *args,
                   int64_t limit, struct err *e)
{
    if (!r->n_done)
        return insert_row(r, q, kind, args, limit, e);
    if (db_begin(r->db, e) < 0)
        return -1;
    if (delete_done(r, e) == 0 && insert_row(r, q, kind, args, limit, e) == 0 &&
        db_commit(r->db, e) == 0)
        return 0;
    db_rollback(r->db);
    return -1;
}

int runner_submit(struct runner *r, struct runner_request *q, const char *kind, const char *args,
                  int64_t wait_ms, struct err *e)
{
    if (!runner_alive(r))
        return runner_is_down(e);
    int64_t limit = wait_ms + MARGIN_MS;
    q->reply = REPLY_PENDING;
    q->run_id[0] = '\0';
    buf_clear(&q->result);
    buf_clear(&q->progress);
    q->progressed = false;
    if (add_row(r, q, kind, args, limit, e) < 0)
        return -1;
    q->deadline_us = clock_mono_us() + limit * 1000;
    if (!ring(r)) {
        int64_t id = q->id;
        q->id = 0;
        if (db_run(r->db, Q_REQUEST_WITHDRAW, e, "i", id) < 0)
            return -1;
        if (db_changes(r->db))
            return runner_is_down(e);
        q->id = id; /* another caller's bell had it taken before the runner went: it will be done */
    }
    r->down = false;
    q->next = r->flying;
    r->flying = q;
    return 0;
}

static void copy_column(struct runner *r, int col, struct buf *out)
{
    buf_clear(out);
    buf_add(out, db_text(r->db, Q_REQUEST_READ, col), db_text_len(r->db, Q_REQUEST_READ, col));
}

/* The row is also read when nothing was rung: only what differs is news. */
static void take_progress(struct runner *r, struct runner_request *q)
{
    if (streq(db_text(r->db, Q_REQUEST_READ, 3), q->progress.p))
        return;
    copy_column(r, 3, &q->progress);
    q->progressed = true;
}

static void take_row(struct runner *r, struct runner_request *q)
{
    if (!db_null(r->db, Q_REQUEST_READ, 4))
        (void)snprintf(q->run_id, sizeof q->run_id, "%s", db_text(r->db, Q_REQUEST_READ, 4));
    if (db_int(r->db, Q_REQUEST_READ, 0) != 2) {
        if (!db_null(r->db, Q_REQUEST_READ, 3))
            take_progress(r, q);
        return;
    }
    copy_column(r, 2, &q->result);
    q->reply = db_int(r->db, Q_REQUEST_READ, 1) == 1 ? REPLY_OK : REPLY_ERROR;
    if (!q->result.len || buf_bad(&q->result)) {
        buf_clear(&q->result);
        buf_adds(&q->result, "{\"error\":\"the answer of the jobs-runner is not usable\","
                             "\"code\":\"internal\",\"fix\":\"call again\"}");
        q->reply = REPLY_ERROR;
    }
}

/* A row that is gone will never be answered. */
static void look_at(struct runner *r, struct runner_request *q)
{
    struct err e = ERR_INIT;
    int n = db_row(r->db, Q_REQUEST_READ, &e, "i", q->id);
    if (n == 1)
        take_row(r, q);
    if (n == 0)
        q->reply = REPLY_NONE;
    if (n >= 0)
        db_done(r->db, Q_REQUEST_READ);
}

static void look_at_id(struct runner *r, int64_t id)
{
    for (struct runner_request *q = r->flying; q; q = q->next)
        if (q->id == id && q->reply == REPLY_PENDING)
            look_at(r, q);
}

static void read_bells(struct runner *r)
{
    unsigned char ids[64 * 8];
    ssize_t n;
    while ((n = read(r->reply_fd, ids, sizeof ids)) > 0)
        for (ssize_t i = 0; i + 8 <= n; i += 8)
            look_at_id(r, (int64_t)wire_u64_get(ids + i));
}

static void expire(struct runner *r, int64_t now)
{
    for (struct runner_request *q = r->flying; q; q = q->next)
        if (q->reply == REPLY_PENDING && now >= q->deadline_us) {
            look_at(r, q);
            if (q->reply == REPLY_PENDING)
                q->reply = REPLY_NONE;
        }
}

void runner_dispatch(struct runner *r)
{
    int64_t now = clock_mono_us();
    read_bells(r);
    if (r->flying && now - r->last_sweep_us >= SWEEP_US) {
        r->last_sweep_us = now;
        for (struct runner_request *q = r->flying; q; q = q->next)
            if (q->reply == REPLY_PENDING)
                look_at(r, q);
        bool down = !runner_alive(r);
        if (r->down && !down)
            (void)ring(r);
        r->down = down;
    }
    expire(r, now);
}

size_t runner_poll(struct runner *r, struct pollfd *fds)
{
    fds[0] = (struct pollfd){.fd = r->reply_fd, .events = POLLIN};
    return 1;
}

int runner_timeout(const struct runner *r, int64_t now_us)
{
    if (!r->flying)
        return -1;
    int64_t left = SWEEP_US;
    for (const struct runner_request *q = r->flying; q; q = q->next)
        if (q->reply == REPLY_PENDING)
            left = MIN(left, MAX(q->deadline_us - now_us, (int64_t)0));
        else
            return 0;
    return (int)(left / 1000) + 1;
}

int runner_no_reply(struct runner *r, const struct runner_request *q, struct err *e)
{
    bool down = !runner_alive(r);
    if (down)
        err_set(e, ERR_UNAVAILABLE, "the jobs-runner stopped before it answered");
    else
        err_set(e, ERR_TIMEOUT, "the jobs-runner did not answer in time");
    const char *code = down ? "runner_down" : "timeout";
    if (*q->run_id)
        return err_fix(e, code,
                       "the command was started and may still run: see get_job "
                       "{\"job_id\":\"%s\"} before starting it again%s",
                       q->run_id, down ? ", once the owner has run 'make up'" : "");
    return err_fix(e, code,
                   down ? "the owner of the server runs 'make up' on it; look at what "
                          "exists (list_sandboxes, list_files) before repeating the call"
                        : "it may still be at work (an image that is pulled takes "
                          "minutes): look at list_sandboxes, then call again");
}

void runner_clean(const struct settings *s, pid_t pid)
{
    char prefix[24];
    int n = snprintf(prefix, sizeof prefix, "%d-", pid);
    struct buf path = BUF_INIT(PATH_MAX);
    layout_reply_dir(s, &path);
    DIR *d = opendir(path.p);
    buf_release(&path);
    for (struct dirent *entry; d && (entry = readdir(d));)
        if (strncmp(entry->d_name, prefix, (size_t)n) == 0)
            (void)unlinkat(dirfd(d), entry->d_name, 0);
    if (d)
        (void)closedir(d);
}
