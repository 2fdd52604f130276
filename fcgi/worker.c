#include "fcgi/worker.h"

#include "common/log.h"
#include "fcgi/app.h"
#include "fcgi/http.h"
#include "fcgi/web.h"

#include <fcgiapp.h>
#include <malloc.h>
#include <sys/epoll.h>

/*
 * When a request ends libfcgi waits for the web server to close the connection, up to 2 s by
 * default. The variable is read by FCGX_Init.
 */
#define CLOSE_POLL "LIBFCGI_OS_CLOSE_POLL_TIMEOUT=100"

#define TIDY_AFTER_MS 500 /* without a request */

static volatile sig_atomic_t stop;

static void on_term(int sig)
{
    (void)sig;
    stop = 1;
}

/* setenv is not used anywhere: a new vector with one entry more does the same. */
static void add_to_environment(char *entry)
{
    size_t n = 0;
    while (environ[n])
        n++;
    char **copy = xcalloc(n + 2, sizeof *copy);
    memcpy(copy, environ, n * sizeof *copy);
    copy[n] = entry;
    environ = copy;
}

static ssize_t face_read(void *ctx, void *p, size_t n)
{
    FCGX_Request *r = ctx;
    int got = FCGX_GetStr(p, (int)MIN(n, (size_t)INT_MAX), r->in);
    return got == 0 && FCGX_GetError(r->in) ? -1 : got;
}

static int face_write(void *ctx, const void *p, size_t n)
{
    FCGX_Request *r = ctx;
    return FCGX_PutStr(p, (int)MIN(n, (size_t)INT_MAX), r->out) < 0 ? -1 : 0;
}

static int face_flush(void *ctx)
{
    FCGX_Request *r = ctx;
    return FCGX_FFlush(r->out) < 0 || FCGX_GetError(r->out) ? -1 : 0;
}

static const struct http_face face = {face_read, face_write, face_flush};

/* After a large request: its many small blocks would keep their pages. */
static void give_memory_back(const struct http *h)
{
    const char *length = http_var(h, "CONTENT_LENGTH");
    if (length && strlen(length) >= 6)
        (void)malloc_trim(0);
}

static void serve(struct app *app, FCGX_Request *r, const struct worker_hooks *hooks)
{
    struct http h;
    hooks->busy(hooks->ctx);
    http_init(&h, &face, r, r->envp, r->ipcFd);
    web_serve(app, &h);
    give_memory_back(&h);
    http_release(&h);
    FCGX_Finish_r(r);
    hooks->idle(hooks->ctx);
}

/* Own handlers after FCGX_Init, which installs some. */
static void set_signals(sigset_t *ret_waiting)
{
    struct sigaction term = {.sa_handler = on_term}, ignore = {.sa_handler = SIG_IGN};
    sigset_t blocked;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    (void)sigprocmask(SIG_SETMASK, &blocked, NULL);
    (void)sigaction(SIGTERM, &term, NULL);
    (void)sigaction(SIGPIPE, &ignore, NULL);
    (void)sigaction(SIGUSR1, &ignore, NULL);
    (void)sigaction(SIGINT, &ignore, NULL); /* Ctrl-C reaches the group; the parent tells us */
    sigemptyset(ret_waiting);
}

/* EPOLLEXCLUSIVE: a connection wakes one worker, not all that are idle. */
static int watch(int listen_fd)
{
    int ep = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event ev = {.events = EPOLLIN | EPOLLEXCLUSIVE};
    if (ep < 0 || epoll_ctl(ep, EPOLL_CTL_ADD, listen_fd, &ev) < 0) {
        log_error("epoll: %s", strerror(errno));
        closep(&ep);
        return -1;
    }
    return ep;
}

static void accept_loop(struct app *app, int listen_fd, int ep, const sigset_t *waiting,
                        const struct worker_hooks *hooks)
{
    FCGX_Request r;
    (void)FCGX_InitRequest(&r, listen_fd, 0);
    while (!stop) {
        struct epoll_event ev;
        int patience = runner_untidy(&app->runner) ? TIDY_AFTER_MS : -1;
        int n = epoll_pwait(ep, &ev, 1, patience, waiting);
        if (n == 0)
            runner_tidy(&app->runner);
        if (n <= 0)
            continue;
        /* Negative: another worker was faster, or the peer talked rubbish. */
        if (FCGX_Accept_r(&r) >= 0)
            serve(app, &r, hooks);
    }
    FCGX_Free(&r, 1);
}

int worker_run(const struct settings *s, int listen_fd, const struct worker_hooks *hooks)
{
    static char close_poll[] = CLOSE_POLL;
    struct app app;
    struct err e = ERR_INIT;
    sigset_t waiting;
    /* Fixed, or one large request would make malloc keep that much for ever. */
    (void)mallopt(M_MMAP_THRESHOLD, 256 << 10);
    add_to_environment(close_poll);
    if (FCGX_Init() != 0 || app_init(&app, s, &e) < 0) {
        log_error("a worker cannot start: %s", e.msg);
        return 1;
    }
    set_signals(&waiting);
    if (app_open(&app, &e) < 0)
        log_err(LOG_LEVEL_WARN, "database", &e);
    int ep = watch(listen_fd);
    if (ep >= 0)
        accept_loop(&app, listen_fd, ep, &waiting, hooks);
    closep(&ep);
    app_release(&app);
    return ep < 0;
}
