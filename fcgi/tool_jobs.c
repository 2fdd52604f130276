#include "fcgi/tool.h"

#include "common/clock.h"
#include "common/runlog.h"
#include "common/text.h"
#include "fcgi/queries.h"

/* Columns of Q_RUN. */
enum {
    R_SANDBOX,
    R_NAME,
    R_COMMAND,
    R_STATUS,
    R_EXIT_CODE,
    R_SIGNAL,
    R_OOM,
    R_LEFT,
    R_REASON,
    R_STARTED,
    R_ENDED,
    R_DURATION,
    R_LOG
};

/* A job id as it is stored (models sometimes shout it); false after filling in the error. */
static bool job_id(struct call *c, char ret[ULID_LEN + 1])
{
    const char *given = args_string(&c->args, "job_id", "");
    size_t n = strlen(given);
    if (n == ULID_LEN) {
        for (size_t i = 0; i <= n; i++)
            ret[i] = (char)(given[i] >= 'A' && given[i] <= 'Z' ? given[i] + 32 : given[i]);
        if (ulid_valid(ret))
            return true;
    }
    struct buf shown = BUF_INIT(400);
    text_excerpt(&shown, given, n, 64);
    err_set(&c->err, ERR_INVALID, "the argument \"job_id\" is \"%s\"", shown.p);
    err_fix(&c->err, "invalid_argument",
            "use the job_id that run_background or exec gave: 26 letters and digits");
    buf_release(&shown);
    return false;
}

static int unknown_job(struct call *c, const char *id)
{
    return job_missing(id, c->app->settings, &c->err);
}

/* 1 the row is current, 0 no such job (error filled in), -1 error. */
static int find_run(struct call *c, const char *id)
{
    int n = db_row(&c->app->db, Q_RUN, &c->err, "t", id);
    if (n == 0)
        (void)unknown_job(c, id);
    return n;
}

static void write_clean(struct jw *w, const char *key, const char *p, size_t n, unsigned cut)
{
    struct buf clean = BUF_INIT(4 * n + 16);
    enum text_encoding enc = text_clean(&clean, p, n, cut);
    jw_key(w, key);
    jw_string_n(w, clean.p, clean.len);
    if (enc != TEXT_UTF8 && streq(key, "log_tail"))
        jw_kstring(w, "encoding", text_encoding_name(enc));
    buf_release(&clean);
}

/* Start of the last `lines` lines. */
static size_t last_lines(const char *p, size_t n, int64_t lines)
{
    size_t i = n && p[n - 1] == '\n' ? n - 1 : n;
    if (lines == 0)
        return n;
    while (i > 0) {
        if (p[i - 1] == '\n' && --lines == 0)
            return i;
        i--;
    }
    return 0;
}

/* Where a piece that does not reach the end of the log is best cut: behind a line, or a character.
 */
static size_t good_cut(const char *p, size_t n)
{
    const char *nl = n ? memrchr(p, '\n', n) : NULL;
    if (nl && (size_t)(nl - p) >= n / 2)
        return (size_t)(nl - p) + 1;
    size_t cut = text_utf8_trim(p, n);
    return cut ? cut : n;
}

static void write_log(struct jw *w, const struct runlog *l, uint64_t at, const char *p, size_t n,
                      bool cut_back)
{
    write_clean(w, "log_tail", p, n, (at ? TEXT_CUT_FRONT : 0) | (cut_back ? TEXT_CUT_BACK : 0));
    jw_kint(w, "log_offset", (int64_t)at);
    jw_kint(w, "next_offset", (int64_t)(at + n));
    if (at + n < l->total)
        jw_kbool(w, "more", true);
}

static int log_from(struct call *c, struct jw *w, const struct runlog *l, uint64_t offset,
                    bool live)
{
    struct buf piece = BUF_INIT((size_t)c->app->settings->max_output);
    uint64_t at = runlog_first_kept(l, MIN(offset, l->total));
    int r = runlog_read(l, at, piece.max, &piece, &c->err) < 0 ? -1 : 0;
    if (r == 0) {
        bool more = live || at + piece.len < l->total;
        size_t n = more ? good_cut(piece.p, piece.len) : piece.len;
        if (at > offset)
            jw_kint(w, "dropped_bytes", (int64_t)(at - offset));
        write_log(w, l, at, piece.p, n, more);
    }
    buf_release(&piece);
    return r;
}

static int log_tail(struct call *c, struct jw *w, const struct runlog *l, bool live)
{
    struct buf piece = BUF_INIT((size_t)c->app->settings->max_output);
    uint64_t at = l->total > piece.max ? runlog_first_kept(l, l->total - piece.max) : 0;
    /* Two reads: the first may end where the head of the log ends and the ring begins. */
    int r = runlog_read(l, at, piece.max, &piece, &c->err) < 0 ? -1 : 0;
    if (r == 0 && at + piece.len < l->total) {
        at = runlog_first_kept(l, at + piece.len);
        buf_clear(&piece);
        r = runlog_read(l, at, piece.max, &piece, &c->err) < 0 ? -1 : 0;
    }
    if (r == 0) {
        size_t from = last_lines(piece.p, piece.len, args_int(&c->args, "tail_lines", 200));
        size_t n = live ? text_utf8_trim(piece.p, piece.len) : piece.len;
        from = MIN(from, n);
        write_log(w, l, at + from, piece.p + from, n - from, live);
    }
    buf_release(&piece);
    return r;
}

static int add_log(struct call *c, struct jw *w, const char *id, bool live)
{
    struct buf path = BUF_INIT(PATH_MAX);
    layout_run_log(c->app->settings, id, &path);
    struct runlog l = RUNLOG_INIT;
    int r = runlog_open_read(&l, path.p, &c->err);
    buf_release(&path);
    if (r < 0 && c->err.kind != ERR_NOTFOUND)
        return -1;
    jw_kint(w, "log_bytes", r < 0 ? 0 : (int64_t)l.total);
    if (r < 0) {
        jw_kstring(w, "log_tail", "");
        jw_kint(w, "next_offset", 0);
        return 0;
    }
    r = args_has(&c->args, "offset")
            ? log_from(c, w, &l, (uint64_t)args_int(&c->args, "offset", 0), live)
            : log_tail(c, w, &l, live);
    runlog_close(&l);
    return r;
}

static void add_flags(struct db *db, struct jw *w)
{
    char name[16];
    if (!db_null(db, Q_RUN, R_SIGNAL))
        jw_kstring(w, "signal", text_signal((int)db_int(db, Q_RUN, R_SIGNAL), name));
    if (db_int(db, Q_RUN, R_OOM))
        jw_kbool(w, "oom_killed", true);
    if (db_int(db, Q_RUN, R_LEFT))
        jw_kint(w, "left_running", db_int(db, Q_RUN, R_LEFT));
    if (!db_null(db, Q_RUN, R_REASON))
        jw_kstring(w, "reason", db_text(db, Q_RUN, R_REASON));
}

static void add_time(struct db *db, struct jw *w)
{
    char iso[32];
    int64_t now = clock_real_ms(), started = db_int(db, Q_RUN, R_STARTED);
    bool ended = !db_null(db, Q_RUN, R_ENDED);
    int64_t ms = (ended ? db_int(db, Q_RUN, R_ENDED) : now) - started;
    if (ended && !db_null(db, Q_RUN, R_DURATION))
        ms = db_int(db, Q_RUN, R_DURATION) / 1000;
    jw_kreal(w, "elapsed_seconds", (double)MAX(ms, (int64_t)0) / 1000);
    jw_kstring(w, "started_at", clock_iso(started, iso));
    if (ended)
        jw_kstring(w, "ended_at", clock_iso(db_int(db, Q_RUN, R_ENDED), iso));
    jw_kstring(w, "polled_at", clock_iso(now, iso));
}

/* The row is current; returns whether the run is still going. */
static bool add_run(struct call *c, struct jw *w, const char *id)
{
    struct db *db = &c->app->db;
    bool live = db_null(db, Q_RUN, R_ENDED);
    const char *status = db_text(db, Q_RUN, R_STATUS);
    jw_kstring(w, "job_id", id);
    jw_kstring(w, "sandbox", db_text(db, Q_RUN, R_SANDBOX));
    if (!db_null(db, Q_RUN, R_NAME))
        jw_kstring(w, "name", db_text(db, Q_RUN, R_NAME));
    write_clean(w, "command", db_text(db, Q_RUN, R_COMMAND), db_text_len(db, Q_RUN, R_COMMAND),
                TEXT_CUT_BACK);
    jw_kstring(w, "status", streq(status, "queued") ? "running" : status);
    if (!db_null(db, Q_RUN, R_EXIT_CODE))
        jw_kint(w, "exit_code", db_int(db, Q_RUN, R_EXIT_CODE));
    add_flags(db, w);
    add_time(db, w);
    return live;
}

static int show_job(struct call *c, const char *id, const char *note)
{
    if (find_run(c, id) != 1)
        return CALL_FAILED;
    struct jw w = JW_INIT(&c->out);
    buf_clear(&c->out);
    jw_object(&w);
    bool live = add_run(c, &w, id);
    db_done(&c->app->db, Q_RUN);
    if (add_log(c, &w, id, live) < 0)
        return CALL_FAILED;
    jw_kstring(&w, "note", note);
    jw_end_object(&w);
    return CALL_DONE;
}

static int after_wait(struct call *c)
{
    char id[ULID_LEN + 1];
    if (!job_id(c, id))
        return CALL_FAILED;
    return show_job(c, id,
                    c->request.reply == REPLY_NONE
                        ? "the jobs-runner did not answer: this is what is stored"
                        : NULL);
}

static int ask_wait(struct call *c, const char *id, int64_t wait)
{
    struct buf args = BUF_INIT(1024);
    struct jw w = JW_INIT(&args);
    jw_object(&w);
    jw_kstring(&w, "job_id", id);
    jw_kint(&w, "wait_ms", wait);
    if (c->progress)
        jw_kbool(&w, "progress", true);
    jw_end_object(&w);
    int r = call_ask(c, "wait", &args, wait, after_wait);
    buf_release(&args);
    return r;
}

int tool_get_job(struct call *c)
{
    char id[ULID_LEN + 1];
    if (!job_id(c, id) || find_run(c, id) != 1)
        return CALL_FAILED;
    bool live = db_null(&c->app->db, Q_RUN, R_ENDED);
    db_done(&c->app->db, Q_RUN);
    int64_t wait = (int64_t)(args_number(&c->args, "wait", 15) * 1000);
    if (!live || wait <= 0)
        return show_job(c, id, NULL);
    int r = ask_wait(c, id, wait);
    if (r != CALL_FAILED || c->err.kind != ERR_UNAVAILABLE)
        return r;
    return show_job(c, id, "the jobs-runner is not running: this is what is stored");
}

int tool_stop_job(struct call *c)
{
    char id[ULID_LEN + 1];
    if (!job_id(c, id) || find_run(c, id) != 1)
        return CALL_FAILED;
    db_done(&c->app->db, Q_RUN);
    struct buf args = BUF_INIT(1024);
    struct jw w = JW_INIT(&args);
    jw_object(&w);
    jw_kstring(&w, "job_id", id);
    jw_kstring(&w, "signal", args_string(&c->args, "signal", "TERM"));
    jw_end_object(&w);
    int r = call_ask(c, "stop", &args, ASK_FAST_MS, call_pass);
    buf_release(&args);
    return r;
}
