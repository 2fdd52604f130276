#include "images/agent/reap.h"

#include "images/agent/cgroup.h"
#include "images/agent/left.h"
#include "images/agent/loop.h"
#include "images/agent/run.h"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SHUTDOWN_MS 400

/* What `docker stop` may send; images choose their own stop signal. */
static const int stop_signals[] = {SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGWINCH};
#define SYSTEMD_STOP 37 /* SIGRTMIN+3 as the kernel counts */

static void signals_ready(struct source *s, uint32_t events);
static struct source signals = {.fd = -1, .ready = signals_ready};

int reap_init(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SYSTEMD_STOP);
    for (size_t i = 0; i < ARRAY_LEN(stop_signals); i++)
        sigaddset(&set, stop_signals[i]);
    /* Outside of a container (tests) orphans of runs would go elsewhere. */
    if (getpid() != 1)
        (void)prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    signals.fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return signals.fd < 0 ? -1 : source_watch(&signals, EPOLLIN);
}

static void reap_children(void)
{
    pid_t pid;
    int status;
    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (run_reaped(pid, status))
            continue;
        (void)left_reaped(pid);
        /* An out-of-memory kill between two runs must not be blamed on the next one. */
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !run_any_live())
            (void)cgroup_oom_kills();
    }
    run_reaped_all();
}

static bool is_stop(const struct signalfd_siginfo *i)
{
    /* SI_USER: sent by kill(), which a terminal's SIGWINCH or SIGHUP is not. */
    return i->ssi_signo != SIGCHLD && i->ssi_code == SI_USER && (getpid() != 1 || i->ssi_pid == 0);
}

static void signals_ready(struct source *s, uint32_t events)
{
    struct signalfd_siginfo info[4];
    (void)events;
    ssize_t n = read(s->fd, info, sizeof info);
    for (ssize_t i = 0; n > 0 && i < n / (ssize_t)sizeof *info; i++)
        if (is_stop(&info[i]))
            loop_stop();
    reap_children();
}

static void shutdown_signal(int sig)
{
    if (getpid() == 1)
        (void)kill(-1, sig);
    else
        for (const struct run *r = run_first(); r; r = r->next)
            if (r->pid > 0)
                (void)kill(-r->pid, sig);
}

void reap_shutdown(void)
{
    sigset_t child;
    struct timespec tick = {.tv_nsec = 20000000};
    uint64_t until = clock_us() + SHUTDOWN_MS * 1000u;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    shutdown_signal(SIGTERM);
    shutdown_signal(SIGCONT);
    do {
        pid_t pid;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
            continue;
        if (pid < 0)
            return; /* no child is left */
        (void)sigtimedwait(&child, NULL, &tick);
    } while (clock_us() < until);
    shutdown_signal(SIGKILL);
}
