#include "common/base.h"

#include "jobs-runner/gc.h"

#include "common/clock.h"
#include "common/layout.h"
#include "common/log.h"
#include "jobs-runner/housekeeper.h"
#include "jobs-runner/queries.h"
#include "jobs-runner/run.h"
#include "jobs-runner/sandbox_internal.h"

#include <dirent.h>

#define REQUEST_KEPT_MS 60000
#define RUNS_A_ROUND    2000

/* The responder notes its own uses (files) in the row: take them over. */
static void take_over_use(struct sandbox *sb)
{
    struct db *db = &sb->r->db;
    struct err e = ERR_INIT;
    if (db_row(db, Q_SANDBOX_LAST_USED, &e, "t", sb->name) > 0) {
        int64_t noted = db_int(db, Q_SANDBOX_LAST_USED, 0);
        if (noted > sb->last_used) {
            int64_t ago = MAX(clock_real_ms() - noted, (int64_t)0);
            sb->last_used = noted;
            sb->used_us = MAX(sb->used_us, clock_mono_us() - ago * 1000);
        }
    }
    db_done(db, Q_SANDBOX_LAST_USED);
}

static void sweep_sandbox(struct sandbox *sb)
{
    const struct settings *cfg = sb->r->cfg;
    if (sb->removing)
        return;
    if (sb->expires_at && clock_real_ms() >= sb->expires_at) {
        log_info("sandbox %s: its time to live is over", sb->name);
        sandbox_destroy(sb, true, NULL);
        return;
    }
    if (sb->wants || runs_live_in(sb->r, sb->name)) {
        sb->used_us = clock_mono_us();
        return;
    }
    take_over_use(sb);
    int64_t idle = (clock_mono_us() - sb->used_us) / 1000000;
    if (cfg->idle_remove && idle >= cfg->idle_remove) {
        log_info("sandbox %s: removed after %" PRId64 " s without use", sb->name, idle);
        sandbox_destroy(sb, true, NULL);
    } else if (cfg->idle_stop && idle >= cfg->idle_stop && sb->state == SB_READY) {
        log_info("sandbox %s: stopped after %" PRId64 " s without use", sb->name, idle);
        sandbox_stop(sb);
    }
}

static void delete_run(struct runner *r, const char *id)
{
    struct err e = ERR_INIT;
    struct buf path = BUF_INIT(PATH_MAX);
    layout_run_log(r->cfg, id, &path);
    if (unlink(path.p) < 0 && errno != ENOENT)
        log_warn("cannot delete %s: %s", path.p, strerror(errno));
    buf_release(&path);
    if (db_run(&r->db, Q_RUN_DELETE, &e, "t", id) < 0)
        log_err(LOG_LEVEL_WARN, "old run", &e);
}

/* Ids of one batch, so that the statement is not open while rows are deleted. */
static size_t old_runs(struct runner *r, char ids[][ULID_LEN + 1], size_t room)
{
    char floor[ULID_LEN + 1];
    struct err e = ERR_INIT;
    int64_t before = clock_real_ms() - r->cfg->job_log_retention * 1000;
    size_t n = 0;
    ulid_floor(before, floor);
    int more = db_row(&r->db, Q_RUN_OLD, &e, "ti", floor, before);
    for (; more > 0 && n < room; more = db_next(&r->db, Q_RUN_OLD, &e))
        if (ulid_valid(db_text(&r->db, Q_RUN_OLD, 0)))
            (void)snprintf(ids[n++], ULID_LEN + 1, "%s", db_text(&r->db, Q_RUN_OLD, 0));
    db_done(&r->db, Q_RUN_OLD);
    return n;
}

static void sweep_runs(struct runner *r)
{
    static char ids[500][ULID_LEN + 1];
    struct err e = ERR_INIT;
    for (size_t done = 0, n = 1; n && done < RUNS_A_ROUND; done += n) {
        n = old_runs(r, ids, ARRAY_LEN(ids));
        if (!n || db_begin(&r->db, &e) < 0)
            return;
        for (size_t i = 0; i < n; i++)
            delete_run(r, ids[i]);
        if (db_commit(&r->db, &e) < 0)
            log_err(LOG_LEVEL_WARN, "old runs", &e);
    }
}

/* A reply FIFO is called <pid>-<random>; it is litter when there is no such process. */
static bool owner_is_gone(const char *name)
{
    char proc[64];
    size_t digits = strspn(name, "0123456789");
    if (!digits || digits > 10 || name[digits] != '-')
        return false;
    (void)snprintf(proc, sizeof proc, "/proc/%.*s", (int)digits, name);
    return access(proc, F_OK) < 0 && errno == ENOENT;
}

static void sweep_fifos(struct runner *r)
{
    struct buf path = BUF_INIT(PATH_MAX);
    layout_reply_dir(r->cfg, &path);
    DIR *d = opendir(path.p);
    buf_release(&path);
    const struct dirent *ent;
    while (d && (ent = readdir(d)))
        if (owner_is_gone(ent->d_name))
            (void)unlinkat(dirfd(d), ent->d_name, 0);
    if (d)
        (void)closedir(d);
}

static void sweep(struct runner *r)
{
    struct err e = ERR_INIT;
    for (struct sandbox *sb = r->sandboxes, *next; sb; sb = next) {
        next = sb->next;
        sweep_sandbox(sb);
    }
    sweep_runs(r);
    if (db_run(&r->db, Q_REQUEST_PURGE, &e, "i", clock_real_ms() - REQUEST_KEPT_MS) < 0)
        log_err(LOG_LEVEL_WARN, "old requests", &e);
    sweep_fifos(r);
    containers_reconcile(r);
    housekeeper_wake(r->housekeeper);
}

static int on_gc(sd_event_source *s, uint64_t usec, void *arg)
{
    (void)s;
    (void)usec;
    struct runner *r = arg;
    sweep(r);
    (void)timer_after(r, &r->gc_timer, r->cfg->gc_interval * 1000000, on_gc, r);
    return 0;
}

int gc_start(struct runner *r, struct err *e)
{
    sweep_fifos(r);
    housekeeper_wake(r->housekeeper);
    if (timer_after(r, &r->gc_timer, r->cfg->gc_interval * 1000000, on_gc, r) < 0)
        return err_set(e, ERR_INTERNAL, "cannot start the clean-up timer");
    return 0;
}

void gc_stop(struct runner *r)
{
    timer_off(&r->gc_timer);
}
