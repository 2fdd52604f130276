#include "common/layout.h"

#include "common/clock.h"
#include "common/fs.h"

#include <sys/random.h>

void layout_doorbell(const struct settings *s, struct buf *out)
{
    buf_addf(out, "%s/doorbell", s->run_dir);
}

void layout_reply_dir(const struct settings *s, struct buf *out)
{
    buf_addf(out, "%s/reply", s->run_dir);
}

void layout_reply(const struct settings *s, const char *name, struct buf *out)
{
    buf_addf(out, "%s/reply/%s", s->run_dir, name);
}

void layout_socket_dir(const struct settings *s, const char *sandbox, struct buf *out)
{
    buf_addf(out, "%s/sb/%s", s->run_dir, sandbox);
}

void layout_sandbox_dir(const struct settings *s, const char *sandbox, struct buf *out)
{
    buf_addf(out, "%s/%s", s->data_dir, sandbox);
}

void layout_workspace(const struct settings *s, const char *sandbox, struct buf *out)
{
    buf_addf(out, "%s/%s/workspace", s->data_dir, sandbox);
}

void layout_run_log(const struct settings *s, const char *run, struct buf *out)
{
    buf_addf(out, "%s/.runs/%s/%s.log", s->data_dir, run + ULID_LEN - 2, run);
}

void layout_trash(const struct settings *s, struct buf *out)
{
    buf_addf(out, "%s/.trash", s->data_dir);
}

void layout_socket_trash(const struct settings *s, struct buf *out)
{
    buf_addf(out, "%s/sb/.trash", s->run_dir);
}

static int make_dir(const char *base, const char *sub, mode_t mode, struct err *e)
{
    struct buf path = BUF_INIT(PATH_MAX);
    buf_addf(&path, "%s%s", base, sub);
    int r = buf_bad(&path) ? err_set(e, ERR_INVALID, "the path %s is too long", base)
                           : fs_mkdirs(path.p, mode, e);
    buf_release(&path);
    return r;
}

int layout_create(const struct settings *s, struct err *e)
{
    /* The web server passes through RUN_DIR to the responder's socket, and sees nothing else. */
    if (make_dir(s->run_dir, "", 0711, e) < 0 || make_dir(s->run_dir, "/reply", 0700, e) < 0 ||
        make_dir(s->run_dir, "/sb", 0700, e) < 0 ||
        make_dir(s->run_dir, "/sb/.trash", 0700, e) < 0 || make_dir(s->data_dir, "", 0700, e) < 0 ||
        make_dir(s->data_dir, "/.runs", 0700, e) < 0 ||
        make_dir(s->data_dir, "/.trash", 0700, e) < 0)
        return -1;
    struct buf bell = BUF_INIT(PATH_MAX);
    layout_doorbell(s, &bell);
    int r = fs_fifo(bell.p, e);
    buf_release(&bell);
    return r;
}

static const char base32[] = "0123456789abcdefghjkmnpqrstvwxyz";

static void put_time(char ret[ULID_LEN + 1], int64_t real_ms)
{
    uint64_t t = (uint64_t)real_ms;
    for (int i = 9; i >= 0; i--, t >>= 5)
        ret[i] = base32[t & 31];
}

int64_t ulid_time(const char *id)
{
    int64_t t = 0;
    for (int i = 0; i < 10; i++)
        t = t << 5 | (strchr(base32, id[i]) - base32);
    return t;
}

int job_missing(const char *id, const struct settings *s, struct err *e)
{
    int64_t kept_ms = s->job_log_retention * 1000;
    if (ulid_valid(id) && ulid_time(id) < clock_real_ms() - kept_ms) {
        char made[32];
        err_set(e, ERR_NOTFOUND, "the record of job %s, started %s, has expired", id,
                clock_iso(ulid_time(id), made));
        return err_fix(e, "expired",
                       "records of ended jobs are kept for %" PRId64
                       " s; run the command again and "
                       "save what must stay in a file",
                       s->job_log_retention);
    }
    err_set(e, ERR_NOTFOUND, "job_id: there is no job '%.60s'", id);
    return err_fix(e, "not_found",
                   "use the job_id that run_background or exec returned; records of ended jobs are "
                   "kept for %" PRId64 " s",
                   s->job_log_retention);
}

void ulid_floor(int64_t real_ms, char ret[ULID_LEN + 1])
{
    memset(ret, base32[0], ULID_LEN);
    put_time(ret, MAX(real_ms, (int64_t)0));
    ret[ULID_LEN] = '\0';
}

void ulid_new(char ret[ULID_LEN + 1])
{
    put_time(ret, clock_real_ms());
    unsigned char rnd[16];
    check(getrandom(rnd, sizeof rnd, 0) == (ssize_t)sizeof rnd);
    for (int i = 0; i < 16; i++)
        ret[10 + i] = base32[rnd[i] & 31];
    ret[ULID_LEN] = '\0';
}

bool ulid_valid(const char *s)
{
    return strlen(s) == ULID_LEN && strspn(s, base32) == ULID_LEN;
}

enum bell bell_ring(const char *path, const void *p, size_t n)
{
    _cleanup_close_ int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return BELL_NOBODY;
    ssize_t w;
    do
        w = write(fd, p, n);
    while (w < 0 && errno == EINTR);
    return w < 0 && errno != EAGAIN ? BELL_NOBODY : BELL_RUNG;
}
