#include "fcgi/prefork.h"

#include "common/clock.h"
#include "common/fs.h"
#include "common/log.h"
#include "fcgi/runner.h"
#include "fcgi/worker.h"

#include <grp.h>
#include <poll.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#define BACKLOG       1024
#define STALE_TRIES   60
#define STALE_WAIT_MS 50
#define SHRINK_US     10000000 /* idle time after which one worker more than needed ends */
#define YOUNG_US      2000000  /* one that dies sooner was not started for long */
#define DELAY_MAX     5000000
#define FORK_AGAIN_US 1000000
#define GROW_MAX      8 /* most workers started at a time */

/* Shared with the workers. */
struct place {
    _Atomic pid_t pid; /* 0: free */
    atomic_bool busy;
    int64_t started_us;
    bool ending; /* told to end */
};

struct board {
    atomic_int idle;
    struct place places[];
};

struct parent {
    const struct settings *s;
    int listen_fd;
    int signals;
    int need[2]; /* pipe: a worker says that nobody is idle any more */
    struct board *board;
    size_t n; /* places */
    size_t live;
    size_t grow; /* how many to start next time */
    int64_t calm_since_us;
    int64_t delay_us, not_before_us;
    int64_t stop_us; /* told to stop: kill what is left then */
};

/* What a worker knows of its place. */
struct seat {
    struct board *board;
    struct place *place;
    int need;
};

static void seat_busy(void *ctx)
{
    struct seat *s = ctx;
    atomic_store(&s->place->busy, true);
    if (atomic_fetch_sub(&s->board->idle, 1) <= 1)
        (void)!write(s->need, "+", 1);
}

static void seat_idle(void *ctx)
{
    struct seat *s = ctx;
    atomic_store(&s->place->busy, false);
    atomic_fetch_add(&s->board->idle, 1);
}

static _noreturn_ void be_worker(struct parent *p, struct place *place, pid_t parent)
{
    struct seat seat = {.board = p->board, .place = place, .need = p->need[1]};
    struct worker_hooks hooks = {seat_busy, seat_idle, &seat};
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(0);
    closep(&p->signals);
    closep(&p->need[0]);
    exit(worker_run(p->s, p->listen_fd, &hooks));
}

static bool start_worker(struct parent *p)
{
    size_t i = 0;
    while (i < p->n && atomic_load(&p->board->places[i].pid))
        i++;
    if (i == p->n)
        return false;
    struct place *place = &p->board->places[i];
    pid_t self = getpid();
    /* Counted as idle from now on, or a slow start would look like a need for more. */
    atomic_store(&place->busy, false);
    atomic_fetch_add(&p->board->idle, 1);
    place->started_us = clock_mono_us();
    place->ending = false;
    pid_t pid = fork();
    if (pid == 0)
        be_worker(p, place, self);
    if (pid < 0) {
        log_error("cannot start a worker: %s", strerror(errno));
        p->not_before_us = place->started_us + FORK_AGAIN_US;
        atomic_fetch_sub(&p->board->idle, 1);
        return false;
    }
    atomic_store(&place->pid, pid);
    p->live++;
    return true;
}

static struct place *place_of(struct parent *p, pid_t pid)
{
    for (size_t i = 0; i < p->n; i++)
        if (atomic_load(&p->board->places[i].pid) == pid)
            return &p->board->places[i];
    return NULL;
}

static void worker_ended(struct parent *p, struct place *place, int status)
{
    pid_t pid = atomic_load(&place->pid);
    bool failed = !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    int64_t now = clock_mono_us();
    if (!atomic_load(&place->busy))
        atomic_fetch_sub(&p->board->idle, 1);
    atomic_store(&place->pid, 0);
    p->live--;
    if (!failed)
        return;
    log_warn("worker %d ended by %s %d", pid, WIFSIGNALED(status) ? "signal" : "status",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    runner_clean(p->s, pid);
    bool young = now - place->started_us < YOUNG_US;
    p->delay_us = young ? MIN(MAX(p->delay_us * 2, (int64_t)50000), (int64_t)DELAY_MAX) : 0;
    p->not_before_us = now + p->delay_us;
}

static void reap(struct parent *p)
{
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
        struct place *place = place_of(p, pid);
        if (place)
            worker_ended(p, place, status);
    }
}

static void tell_workers(struct parent *p, int sig)
{
    for (size_t i = 0; i < p->n; i++) {
        pid_t pid = atomic_load(&p->board->places[i].pid);
        if (pid)
            (void)kill(pid, sig);
    }
}

static void told_to_stop(struct parent *p)
{
    bool again = p->stop_us != 0;
    p->stop_us = clock_mono_us() + (again ? 0 : PREFORK_GRACE_MS * 1000LL);
    tell_workers(p, again ? SIGKILL : SIGTERM);
}

static void take_signals(struct parent *p)
{
    struct signalfd_siginfo info;
    while (read(p->signals, &info, sizeof info) == (ssize_t)sizeof info) {
        if (info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT)
            told_to_stop(p);
    }
    reap(p);
}

/* Nobody is idle: start one, then two, four, ... as long as the need comes back soon. */
static void grow(struct parent *p)
{
    char drop[64];
    bool asked = false;
    while (read(p->need[0], drop, sizeof drop) > 0)
        asked = true;
    if (!asked || p->stop_us)
        return;
    p->calm_since_us = clock_mono_us();
    if (atomic_load(&p->board->idle) > 0)
        return;
    for (size_t i = 0; i < p->grow && p->live < (size_t)p->s->workers_max; i++)
        if (!start_worker(p))
            break;
    p->grow = MIN(p->grow * 2, (size_t)GROW_MAX);
}

/* A quarter of what is over the minimum goes; one that woke up meanwhile finishes first. */
static void shrink(struct parent *p)
{
    size_t over = p->live - (size_t)p->s->workers_min;
    size_t end = MAX(over / 4, (size_t)1);
    p->grow = 1;
    p->calm_since_us = clock_mono_us();
    for (size_t i = p->n; i-- > 0 && end;) {
        struct place *place = &p->board->places[i];
        pid_t pid = atomic_load(&place->pid);
        if (atomic_load(&p->board->idle) <= (int)end)
            return;
        if (!pid || place->ending || atomic_load(&place->busy))
            continue;
        place->ending = true;
        end--;
        (void)kill(pid, SIGTERM);
    }
}

static void keep_minimum(struct parent *p)
{
    if (p->stop_us || clock_mono_us() < p->not_before_us)
        return;
    while (p->live < (size_t)p->s->workers_min && start_worker(p))
        ;
}

static int sleep_ms(const struct parent *p)
{
    int64_t now = clock_mono_us(), at = INT64_MAX;
    if (p->stop_us)
        at = p->stop_us;
    else if (p->live < (size_t)p->s->workers_min)
        at = p->not_before_us;
    else if (p->live > (size_t)p->s->workers_min)
        at = p->calm_since_us + SHRINK_US;
    if (at == INT64_MAX)
        return -1;
    return (int)MAX((at - now) / 1000 + 1, (int64_t)1);
}

static void timers(struct parent *p)
{
    int64_t now = clock_mono_us();
    if (p->stop_us && now >= p->stop_us)
        tell_workers(p, SIGKILL);
    else if (!p->stop_us && p->live > (size_t)p->s->workers_min &&
             now - p->calm_since_us >= SHRINK_US)
        shrink(p);
    keep_minimum(p);
}

static int prepare(struct parent *p)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGCHLD);
    (void)sigprocmask(SIG_SETMASK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    p->signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    size_t size = sizeof *p->board + p->n * sizeof p->board->places[0];
    p->board = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p->signals < 0 || pipe2(p->need, O_NONBLOCK | O_CLOEXEC) < 0 || p->board == MAP_FAILED ||
        fcntl(p->listen_fd, F_SETFL, fcntl(p->listen_fd, F_GETFL) | O_NONBLOCK) < 0) {
        log_error("cannot start: %s", strerror(errno));
        return -1;
    }
    return 0;
}

int prefork_run(const struct settings *s, int listen_fd)
{
    struct parent p = {.s = s, .listen_fd = listen_fd, .n = (size_t)s->workers_max, .grow = 1};
    if (prepare(&p) < 0)
        return 1;
    keep_minimum(&p);
    log_info("version " SMCP_VERSION " serves with %" PRId64 " to %" PRId64 " workers",
             s->workers_min, s->workers_max);
    while (!p.stop_us || p.live) {
        struct pollfd fds[] = {{.fd = p.signals, .events = POLLIN},
                               {.fd = p.need[0], .events = POLLIN}};
        (void)poll(fds, ARRAY_LEN(fds), sleep_ms(&p));
        take_signals(&p);
        grow(&p);
        timers(&p);
    }
    return 0;
}

static bool somebody_listens(const struct sockaddr_un *a)
{
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    return fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof *a) == 0;
}

/*
 * A socket that nobody listens on any more was left by a dead process. The workers of one that was
 * just killed end a moment after it.
 */
static int remove_stale(const char *path, const struct sockaddr_un *a, struct err *e)
{
    struct stat st;
    if (lstat(path, &st) < 0)
        return errno == ENOENT ? 0 : err_sys(e, "%s", path);
    if (!S_ISSOCK(st.st_mode))
        return err_set(e, ERR_CONFLICT, "%s exists and is no socket", path);
    for (int i = 0; somebody_listens(a); i++) {
        if (i == STALE_TRIES)
            return err_set(e, ERR_CONFLICT, "another process listens on %s", path);
        (void)poll(NULL, 0, STALE_WAIT_MS);
    }
    return unlink(path) == 0 ? 0 : err_sys(e, "cannot remove %s", path);
}

static int give_to_group(const char *path, const char *group, struct err *e)
{
    const struct group *g = getgrnam(group);
    if (!g)
        return err_set(e, ERR_INVALID, "there is no group %s", group);
    return chown(path, (uid_t)-1, g->gr_gid) == 0 ? 0 : err_sys(e, "cannot chown %s", path);
}

int prefork_listen(const char *path, const char *group, struct err *e)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    size_t n = strlen(path);
    if (n >= sizeof a.sun_path)
        return err_set(e, ERR_INVALID, "the socket path %s is too long", path);
    memcpy(a.sun_path, path, n + 1);
    if (fs_mkdirs_for(path, e) < 0 || remove_stale(path, &a, e) < 0)
        return -1;
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t old = umask(0117);
    int r = fd < 0 ? -1 : bind(fd, (const struct sockaddr *)&a, sizeof a);
    (void)umask(old);
    if (r < 0 || listen(fd, BACKLOG) < 0)
        return err_sys(e, "cannot listen on %s", path);
    if (group && give_to_group(path, group, e) < 0)
        return -1;
    return TAKE_FD(fd);
}
