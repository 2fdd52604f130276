#include "images/agent/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/*
 * The child borrows this stack and the path buffer until it has called exec; the parent sleeps
 * meanwhile, so one of each is enough.
 */
static _Alignas(16) char child_stack[16384];
static char child_path[PATH_MAX];
static sigset_t no_signals;

static void default_signals(void)
{
    struct sigaction dfl = {.sa_handler = SIG_DFL};
    for (int n = 1; n < NSIG; n++)
        (void)sigaction(n, &dfl, NULL);
}

int spawn_init(void)
{
    sigset_t all;
    sigfillset(&all);
    sigemptyset(&no_signals);
    if (sigprocmask(SIG_BLOCK, &all, NULL))
        return -1;
    default_signals();
    int fd;
    while ((fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && fd < SPAWN_NULL)
        (void)fcntl(fd, F_SETFD, 0);
    if (fd < 0 || (fd > SPAWN_NULL && dup3(fd, SPAWN_NULL, O_CLOEXEC) < 0))
        return -1;
    if (fd > SPAWN_NULL)
        close(fd);
#ifdef SYS_close_range
    (void)syscall(SYS_close_range, SPAWN_NULL + 1, ~0u, 0);
#endif
    return 0;
}

/* Like a shell does it: a file that is executable but has no known format is a shell script. */
static void child_exec_file(const struct spawn *s, const char *file)
{
    execve(file, s->argv, s->envp);
    if (errno != ENOEXEC || !s->shell_argv)
        return;
    s->shell_argv[0] = (char *)(uintptr_t) "sh";
    s->shell_argv[1] = (char *)(uintptr_t)file;
    execve("/bin/sh", s->shell_argv, s->envp);
    errno = ENOEXEC;
}

static int child_search(const struct spawn *s)
{
    int seen = ENOENT;
    size_t name = strlen(s->file);
    for (const char *dir = s->search; *dir;) {
        size_t n = strcspn(dir, ":");
        if (n + 1 + name < sizeof child_path) {
            memcpy(child_path, n ? dir : ".", n ? n : 1);
            size_t at = n ? n : 1;
            child_path[at] = '/';
            memcpy(child_path + at + 1, s->file, name + 1);
            child_exec_file(s, child_path);
            if (errno == EACCES)
                seen = EACCES;
            else if (errno != ENOENT && errno != ENOTDIR)
                return errno;
        }
        dir += n + (dir[n] == ':');
    }
    return seen;
}

static int child_exec(const struct spawn *s)
{
    if (s->search && !strchr(s->file, '/'))
        return child_search(s);
    child_exec_file(s, s->file);
    return errno;
}

static int child_stdio(const struct spawn *s)
{
    if (dup2(s->in, 0) < 0 || dup2(s->out, 1) < 0 || dup2(s->err, 2) < 0)
        return -1;
    return s->script >= 0 && dup2(s->script, SPAWN_SCRIPT_FD) < 0 ? -1 : 0;
}

/* Runs in the child on borrowed memory: nothing here but system calls and plain byte work. */
static int child_main(void *arg)
{
    struct spawn *s = arg;
    setsid();
    s->step = SPAWN_STDIO;
    if (!child_stdio(s)) {
        s->step = SPAWN_TTY;
        if (!s->tty || !ioctl(0, TIOCSCTTY, 0)) {
            s->step = SPAWN_CHDIR;
            if (!s->cwd || !chdir(s->cwd)) {
                s->step = SPAWN_EXEC;
                sigprocmask(SIG_SETMASK, &no_signals, NULL);
                errno = child_exec(s);
            }
        }
    }
    s->error = errno;
    _exit(127);
}

pid_t spawn_start(struct spawn *s)
{
    s->step = SPAWN_CLONE;
    s->error = 0;
    pid_t pid =
        clone(child_main, child_stack + sizeof child_stack, CLONE_VM | CLONE_VFORK | SIGCHLD, s);
    if (pid < 0)
        s->error = errno;
    return pid < 0 || s->error ? -1 : pid;
}
