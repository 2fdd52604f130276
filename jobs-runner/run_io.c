#include "common/base.h"

#include "common/log.h"
#include "jobs-runner/run_internal.h"

#define GRACE_MS 1000

static void field(struct buf *b, enum wire_tag tag, const void *p, size_t n)
{
    char *at = buf_reserve(b, WIRE_FIELD(n));
    if (at)
        buf_commit(b, wire_field_put((unsigned char *)at, tag, p, (uint32_t)n));
}

static void text(struct buf *b, enum wire_tag tag, const char *s)
{
    field(b, tag, s, strlen(s));
}

static void number(struct buf *b, enum wire_tag tag, uint64_t v)
{
    unsigned char raw[8];
    wire_u64_put(raw, v);
    field(b, tag, raw, sizeof raw);
}

static void env_fields(struct buf *b, const struct json *env)
{
    for (const struct json *v = json_first(env); v; v = json_next(v)) {
        struct buf pair = BUF_INIT(WIRE_MAX_MESSAGE);
        buf_addf(&pair, "%s=%s", json_key(v), json_type(v) == JSON_STRING ? json_string(v) : "");
        field(b, WT_ENV, pair.p, pair.len);
        buf_release(&pair);
    }
}

static void sandbox_env(struct run *run, struct buf *b)
{
    const struct sandbox *sb = run_sandbox(run);
    _cleanup_json_ struct json *env = NULL;
    struct err e = ERR_INIT;
    if (sb && !streq(sb->spec.env, "{}") &&
        json_parse(sb->spec.env, strlen(sb->spec.env), &env, &e) == 0)
        env_fields(b, env);
}

static void describe(struct run *run, bool has_stdin, struct buf *b)
{
    const struct json *a = run->args;
    text(b, WT_RUN_ID, run->id);
    text(b, WT_COMMAND, json_get_string(a, "command", ""));
    text(b, WT_CWD, json_get_string(a, "workdir", "/workspace"));
    number(b, WT_TIMEOUT_MS, (uint64_t)run->timeout_ms);
    number(b, WT_GRACE_MS, GRACE_MS);
    number(b, WT_STDIN_MODE, has_stdin ? WIRE_STDIN_DATA : WIRE_STDIN_NONE);
    sandbox_env(run, b);
    env_fields(b, json_get(a, "env"));
}

int run_send(struct run *run, struct link *link, struct err *e)
{
    struct buf b = BUF_INIT(WIRE_MAX_MESSAGE);
    const char *input = json_get_string(run->args, "stdin", NULL);
    describe(run, input != NULL, &b);
    int r = -1;
    if (buf_bad(&b)) {
        err_set(e, ERR_LIMIT, "command and environment are larger than %u bytes", WIRE_MAX_MESSAGE);
        err_fix(e, "too_long", "write it to a file with write_text and run that");
    } else {
        r = link_send(link, WIRE_RUN, 0, run->stream, b.p, b.len);
        if (r == 0 && input)
            r = link_send(link, WIRE_STDIN, WIRE_F_EOF, run->stream, input, strlen(input));
    }
    buf_release(&b);
    return r;
}

static void send_signal(struct run *run, struct link *link, int sig, bool tree, int64_t grace_ms)
{
    struct buf b = BUF_INIT(256);
    number(&b, WT_SIGNAL, (uint64_t)sig);
    number(&b, WT_TREE, tree);
    number(&b, WT_GRACE_MS, (uint64_t)grace_ms);
    (void)link_send(link, WIRE_SIGNAL, 0, run->stream, b.p, b.len);
    buf_release(&b);
}

void run_send_stop(struct run *run, struct link *link)
{
    send_signal(run, link, run->stop_signal, true, run->stop_grace_ms);
}

void run_signal(struct run *run, int sig, bool tree, int64_t grace_ms, const char *reason)
{
    struct sandbox *sb = run_sandbox(run);
    if (tree) {
        run->stop_signal = sig;
        run->stop_grace_ms = grace_ms;
    }
    if (reason)
        (void)snprintf(run->reason, sizeof run->reason, "%s", reason);
    if (run->state == RUN_QUEUED) {
        if (tree)
            run_end(run, "stopped");
        return;
    }
    if (sb && sb->link && run->stream)
        send_signal(run, sb->link, sig, tree, grace_ms);
}

/* ---- output ---- */

static void log_gave_up(struct run *run, const struct err *e)
{
    if (!run->log_failed)
        log_err(LOG_LEVEL_WARN, "a run's log", e);
    run->log_failed = true;
}

static void log_add(struct run *run, const char *p, size_t n)
{
    struct err e = ERR_INIT;
    if (run->log.fd < 0 || !n)
        return;
    if (runlog_append(&run->log, p, n, &e) == 0)
        return;
    log_gave_up(run, &e);
    if (runlog_skip(&run->log, n, &e) < 0)
        log_gave_up(run, &e);
}

void run_spill(struct run *run)
{
    struct err e = ERR_INIT;
    if (run->log.fd < 0 && !run->log_failed && run->pending.len) {
        struct buf path = BUF_INIT(PATH_MAX);
        layout_run_log(run->r->cfg, run->id, &path);
        if (runlog_open_write(&run->log, path.p, run->r->cfg->job_log_max, &e) < 0)
            log_gave_up(run, &e);
        buf_release(&path);
    }
    log_add(run, run->pending.p, run->pending.len);
    buf_release(&run->pending);
}

static void acknowledge(struct run *run)
{
    struct sandbox *sb = run_sandbox(run);
    if (run->log.fd < 0 && !run->log_failed)
        return; /* only in memory: the agent must keep it */
    if (run->seen - run->acked < RUN_ACK_STEP || !sb || !sb->link || !run->stream)
        return;
    unsigned char offset[8];
    wire_u64_put(offset, run->seen);
    if (link_send(sb->link, WIRE_ACK, 0, run->stream, offset, sizeof offset) == 0)
        run->acked = run->seen;
}

/* Bytes that the agent no longer has and we never stored: counted as left out. */
static void skip_gap(struct run *run, uint64_t n)
{
    struct err e = ERR_INIT;
    run_spill(run);
    run->seen += n;
    capture_skip(&run->out, n);
    if (run->log.fd >= 0 && runlog_skip(&run->log, n, &e) < 0)
        log_gave_up(run, &e);
}

static void take_output(struct run *run, bool is_stderr, uint64_t offset, const char *p, size_t n)
{
    if (offset > run->seen)
        skip_gap(run, offset - run->seen);
    if (offset + n <= run->seen)
        return; /* it came twice */
    p += run->seen - offset;
    n -= (size_t)(run->seen - offset);
    run->seen += n;
    capture_add(is_stderr && !run->merged ? &run->err : &run->out, p, n);
    if (run->log.fd >= 0) {
        log_add(run, p, n);
    } else {
        buf_add(&run->pending, p, n);
        if (run->job || run->pending.len > RUN_PENDING_MAX)
            run_spill(run);
    }
    acknowledge(run);
}

void run_last_line(const struct run *run, struct buf *out)
{
    const struct capture *c = run->out.total ? &run->out : &run->err;
    struct buf all = BUF_INIT(16u << 20);
    enum text_encoding enc;
    (void)capture_text(c, true, &all, &enc);
    size_t end = all.len;
    while (end && (all.p[end - 1] == '\n' || all.p[end - 1] == '\r'))
        end--;
    size_t start = end;
    while (start && all.p[start - 1] != '\n' && all.p[start - 1] != '\r')
        start--;
    text_excerpt(out, all.p + start, end - start, PROGRESS_MAX);
    buf_release(&all);
}

/* ---- frames from the agent ---- */

struct ending {
    uint64_t code, sig, timed_out, stopped, oom, left, duration;
    bool has_code;
};

static void read_ending(const unsigned char *p, size_t n, struct ending *x)
{
    struct wire_field f;
    size_t pos = 0;
    uint64_t v;
    while (wire_field_next(p, n, &pos, &f) > 0) {
        if (wire_number(&f, &v) < 0)
            continue;
        if (f.tag == WT_EXIT_CODE) {
            x->code = v;
            x->has_code = true;
        } else if (f.tag == WT_SIGNAL) {
            x->sig = v;
        } else if (f.tag == WT_TIMED_OUT) {
            x->timed_out = v;
        } else if (f.tag == WT_STOPPED) {
            x->stopped = v;
        } else if (f.tag == WT_OOM) {
            x->oom = v;
        } else if (f.tag == WT_LEFT) {
            x->left = v;
        } else if (f.tag == WT_DURATION_US) {
            x->duration = v;
        }
    }
}

static void on_ended(struct run *run, const struct wire_header *h, const unsigned char *p, size_t n)
{
    (void)h;
    struct ending x = {.code = 0};
    read_ending(p, n, &x);
    run->signal = (int)(x.sig & 127);
    run->exit_code = x.has_code ? (int)(x.code & 255) : 128 + run->signal;
    run->timed_out = x.timed_out != 0;
    run->oom_killed = x.oom != 0;
    run->left_running = (int64_t)MIN(x.left, (uint64_t)100000);
    run->duration_us = (int64_t)MIN(x.duration, (uint64_t)INT64_MAX);
    bool stopped = x.stopped && run->stop_signal;
    run_end(run, run->timed_out ? "timeout" : stopped ? "stopped" : "finished");
}

static void on_started(struct run *run, const struct wire_header *h, const unsigned char *p,
                       size_t n)
{
    (void)h;
    (void)p;
    (void)n;
    struct sandbox *sb = run_sandbox(run);
    if (run->state == RUN_SENT && sb)
        sandbox_heard(sb);
    run->state = RUN_RUNNING;
    run->args = json_free(run->args);
    run_answer_started(run);
}

static void on_output(struct run *run, const struct wire_header *h, const unsigned char *p,
                      size_t n)
{
    if (n >= 8)
        take_output(run, h->flags & WIRE_F_STDERR, wire_u64_get(p), (const char *)p + 8, n - 8);
}

static void on_failed(struct run *run, const struct wire_header *h, const unsigned char *p,
                      size_t n)
{
    (void)h;
    struct wire_field f;
    size_t pos = 0;
    uint64_t v, number_of_error = 0, now = 0, max = 0;
    struct buf why = BUF_INIT(1024);
    struct err e = ERR_INIT;
    while (wire_field_next(p, n, &pos, &f) > 0) {
        if (f.tag == WT_TEXT)
            text_excerpt(&why, (const char *)f.p, f.n, 200);
        else if (wire_number(&f, &v) < 0)
            continue;
        else if (f.tag == WT_ERRNO)
            number_of_error = v;
        else if (f.tag == WT_PIDS_NOW)
            now = v;
        else if (f.tag == WT_PIDS_MAX)
            max = v;
    }
    if (number_of_error == EAGAIN && max) {
        err_set(&e, ERR_LIMIT, "pids limit %" PRIu64 " reached (%" PRIu64 " in use)", max, now);
        err_fix(&e, "pids_limit",
                "end what runs with stop_job (or destroy_sandbox), then call "
                "again");
    } else {
        err_set(&e, ERR_INVALID, "the command could not be started: %s", why.p);
        err_fix(&e, "not_started", "correct workdir or command and call again");
    }
    buf_release(&why);
    run_fail(run, &e);
}

static const struct {
    uint8_t type;
    void (*take)(struct run *run, const struct wire_header *h, const unsigned char *p, size_t n);
} frames[] = {
    {WIRE_OUTPUT, on_output},
    {WIRE_STARTED, on_started},
    {WIRE_EXIT, on_ended},
    {WIRE_FAILED, on_failed},
};

void run_frame(void *arg, const struct wire_header *h, const unsigned char *payload, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(frames); i++)
        if (frames[i].type == h->type) {
            frames[i].take(arg, h, payload, n);
            return;
        }
}
