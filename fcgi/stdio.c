#include "fcgi/stdio.h"

#include "common/clock.h"
#include "common/fs.h"
#include "common/log.h"
#include "fcgi/rpc.h"

#include <sys/signalfd.h>

struct flight {
    struct exchange x;
    struct flight *next;
};

struct session {
    struct app app;
    struct buf in;
    bool skipping; /* the rest of a line that was too long */
    bool ended;
    struct flight *flying;
};

static void put_line(struct session *s, const char *p, size_t n)
{
    struct err e = ERR_INIT;
    if (fs_write_all(STDOUT_FILENO, p, n, &e) < 0 || fs_write_all(STDOUT_FILENO, "\n", 1, &e) < 0)
        s->ended = true;
}

static void put_answer(struct session *s, const struct exchange *x)
{
    struct buf out = BUF_INIT(RPC_RESPONSE_MAX);
    if (x->n == 1 && x->ops[0].notes.len)
        put_line(s, x->ops[0].notes.p, x->ops[0].notes.len);
    exchange_answer(x, &out);
    if (out.len)
        put_line(s, out.p, out.len);
    buf_release(&out);
}

/* "notifications/cancelled" names a request of this very session, so its id is enough. */
static void cancel(struct session *s, const struct op *note)
{
    const struct json *id = json_get(note->params, "requestId");
    struct buf text = BUF_INIT(1 << 16);
    if (id)
        json_print(id, &text);
    for (struct flight *f = s->flying; f && text.len; f = f->next)
        if (!f->x.batch && f->x.n == 1 && f->x.ops[0].waits && streq(f->x.ops[0].id.p, text.p))
            exchange_cancel(&f->x);
    buf_release(&text);
}

static void take_line(struct session *s, const char *p, size_t n)
{
    struct flight *f = xcalloc(1, sizeof *f);
    struct buf body = BUF_INIT((size_t)s->app.settings->max_body);
    buf_add(&body, p, n);
    exchange_init(&f->x, &s->app, NULL, &body);
    f->x.progress = true;
    exchange_start(&f->x);
    if (f->x.n == 1 && f->x.ops[0].name && streq(f->x.ops[0].name, "notifications/cancelled"))
        cancel(s, &f->x.ops[0]);
    f->next = s->flying;
    s->flying = f;
}

static void take_lines(struct session *s)
{
    for (;;) {
        char *end = memchr(s->in.p, '\n', s->in.len);
        if (!end)
            break;
        size_t n = (size_t)(end - s->in.p), len = n;
        while (len && strchr(" \t\r", s->in.p[len - 1]))
            len--;
        if (len && !s->skipping)
            take_line(s, s->in.p, len);
        s->skipping = false;
        buf_drop_front(&s->in, n + 1);
    }
    if (s->in.len < s->in.max)
        return;
    static const char too_long[] = "{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{\"code\":-32600,"
                                   "\"message\":\"a line is longer than SMCP_MAX_BODY_BYTES\"}}";
    if (!s->skipping)
        put_line(s, too_long, sizeof too_long - 1);
    s->skipping = true;
    buf_clear(&s->in);
}

static void read_input(struct session *s)
{
    size_t room = MIN(s->in.max - s->in.len, (size_t)65536);
    char *at = buf_reserve(&s->in, room);
    ssize_t n = read(STDIN_FILENO, at, room);
    if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) {
        s->ended = true;
        return;
    }
    if (n > 0)
        buf_commit(&s->in, (size_t)n);
    take_lines(s);
}

static void put_progress(struct session *s, struct exchange *x)
{
    struct buf text = BUF_INIT(1 << 16);
    if (x->n == 1 && op_take_progress(&x->ops[0], &text))
        put_line(s, text.p, text.len);
    buf_release(&text);
}

static void step_all(struct session *s)
{
    for (struct flight **at = &s->flying; *at;) {
        struct flight *f = *at;
        put_progress(s, &f->x);
        if (!exchange_step(&f->x)) {
            at = &f->next;
            continue;
        }
        put_answer(s, &f->x);
        *at = f->next;
        exchange_release(&f->x);
        free(f);
    }
    if (s->app.db.handle)
        runner_tidy(&s->app.runner);
}

static void drop_all(struct session *s)
{
    while (s->flying) {
        struct flight *f = s->flying;
        s->flying = f->next;
        exchange_release(&f->x);
        free(f);
    }
}

static int term_fd(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    (void)sigprocmask(SIG_SETMASK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGCHLD, SIG_IGN); /* the runner we may start is nobody we wait for */
    return signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
}

static void turn(struct session *s, int term)
{
    struct pollfd fds[2 + RUNNER_POLL_FDS] = {{.fd = STDIN_FILENO, .events = POLLIN},
                                              {.fd = term, .events = POLLIN}};
    size_t n = 2;
    int ms = -1;
    if (s->app.db.handle) {
        n += runner_poll(&s->app.runner, fds + 2);
        ms = runner_timeout(&s->app.runner, clock_mono_us());
    }
    if (poll(fds, n, ms) < 0 && errno != EINTR)
        s->ended = true;
    if (fds[1].revents) {
        s->ended = true;
        return;
    }
    if (s->app.db.handle)
        runner_dispatch(&s->app.runner);
    if (fds[0].revents)
        read_input(s);
    step_all(s);
}

int stdio_run(const struct settings *settings, const char *env_file)
{
    struct session s = {.flying = NULL};
    struct err e = ERR_INIT;
    if (app_init(&s.app, settings, &e) < 0) {
        log_err(LOG_LEVEL_ERROR, "stdio", &e);
        return 1;
    }
    s.app.starts_runner = true;
    s.app.env_file = env_file;
    buf_init(&s.in, (size_t)settings->max_body);
    _cleanup_close_ int term = term_fd();
    while (!s.ended)
        turn(&s, term);
    drop_all(&s);
    app_release(&s.app);
    buf_release(&s.in);
    return 0;
}
