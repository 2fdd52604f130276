#include "images/agent/proc.h"

#include "common/wire.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
    int dir;      /* /proc */
    int children; /* the agent's own list of children */
} proc = {.dir = -1, .children = -1};

void proc_init(void)
{
    char name[64];
    proc.dir = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    snprintf(name, sizeof name, "/proc/self/task/%d/children", (int)getpid());
    proc.children = open(name, O_RDONLY | O_CLOEXEC);
}

static ssize_t proc_file(const char *name, char *out, size_t size)
{
    int fd = openat(proc.dir, name, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    ssize_t n = read(fd, out, size - 1);
    close(fd);
    out[n > 0 ? n : 0] = 0;
    return n;
}

bool proc_read(pid_t pid, struct proc *ret)
{
    char name[32], b[512];
    snprintf(name, sizeof name, "%d/stat", (int)pid);
    if (proc_file(name, b, sizeof b) <= 0)
        return false;
    /* The command's name may hold anything, also brackets: the last one ends it. */
    char *p = strrchr(b, ')');
    if (!p || p[1] != ' ' || !p[2])
        return false;
    *ret = (struct proc){.pid = pid, .state = p[2]};
    pid_t *const to[] = {&ret->parent, &ret->group, &ret->session};
    p += 3;
    for (size_t i = 0; i < ARRAY_LEN(to); i++)
        *to[i] = (pid_t)strtol(p, &p, 10);
    return true;
}

/*
 * Root without CAP_SYS_PTRACE may not look into a process of another user. The file belongs to
 * that user, so the agent takes that identity for the moment of opening.
 */
static int open_environ(pid_t pid)
{
    char name[32];
    struct stat st;
    snprintf(name, sizeof name, "%d/environ", (int)pid);
    int fd = openat(proc.dir, name, O_RDONLY | O_CLOEXEC);
    if (fd >= 0 || (errno != EACCES && errno != EPERM) || fstatat(proc.dir, name, &st, 0))
        return fd;
    setfsgid(st.st_gid);
    setfsuid(st.st_uid);
    fd = openat(proc.dir, name, O_RDONLY | O_CLOEXEC);
    setfsuid(0);
    setfsgid(0);
    return fd;
}

struct env_search {
    char window[4096];
    size_t have;
    bool at_start; /* the window begins where a variable begins */
};

/* Look at each variable that begins in the window; keep the unfinished last one for later. */
static bool env_search_window(struct env_search *s, bool last, char *out, size_t size)
{
    static const char key[] = WIRE_RUN_ENV "=";
    char *p = s->window, *end = s->window + s->have;
    while (p < end) {
        char *stop = memchr(p, 0, (size_t)(end - p));
        if (!stop && !last && p != s->window)
            break;
        size_t n = (size_t)((stop ? stop : end) - p);
        if (s->at_start && n >= sizeof key - 1 && n - sizeof key + 1 < size &&
            !memcmp(p, key, sizeof key - 1)) {
            memcpy(out, p + sizeof key - 1, n - sizeof key + 1);
            out[n - sizeof key + 1] = 0;
            return true;
        }
        s->at_start = stop != NULL;
        p += n + (stop ? 1 : 0);
    }
    s->have = (size_t)(end - p);
    memmove(s->window, p, s->have);
    return false;
}

bool proc_run_id(pid_t pid, char *out, size_t size)
{
    struct env_search s;
    s.have = 0;
    s.at_start = true;
    bool found = false;
    int fd = open_environ(pid);
    if (fd < 0)
        return false;
    for (size_t total = 0; !found && total < PROC_ENV_MAX;) {
        ssize_t n = read(fd, s.window + s.have, sizeof s.window - s.have);
        s.have += n > 0 ? (size_t)n : 0;
        total += n > 0 ? (size_t)n : 0;
        found = env_search_window(&s, n <= 0, out, size);
        if (n <= 0)
            break;
    }
    close(fd);
    return found;
}

static void proc_list_add(struct proc_list *list, const struct proc *p)
{
    if (list->count == list->cap) {
        size_t cap = list->cap ? list->cap * 2 : 64;
        struct proc *bigger = realloc(list->p, cap * sizeof *bigger);
        if (!bigger)
            return;
        list->p = bigger;
        list->cap = cap;
    }
    list->p[list->count++] = *p;
}

void proc_list_release(struct proc_list *list)
{
    free(list->p);
    *list = (struct proc_list){0};
}

struct dirent_raw {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
};

/* Call `each` with every name that is a number. */
static int each_number(int dir, void (*each)(pid_t, void *), void *arg)
{
    _Alignas(8) char b[4096];
    long n;
    if (lseek(dir, 0, SEEK_SET) < 0)
        return -1;
    while ((n = syscall(SYS_getdents64, dir, b, sizeof b)) > 0) {
        for (long at = 0; at < n;) {
            const struct dirent_raw *d = (const void *)(b + at);
            at += d->reclen;
            if (d->name[0] >= '1' && d->name[0] <= '9')
                each((pid_t)strtol(d->name, NULL, 10), arg);
        }
    }
    return n < 0 ? -1 : 0;
}

static void add_process(pid_t pid, void *arg)
{
    struct proc p;
    if (pid != getpid() && proc_read(pid, &p))
        proc_list_add(arg, &p);
}

static int by_pid(const void *a, const void *b)
{
    const struct proc *x = a, *y = b;
    return x->pid < y->pid ? -1 : x->pid > y->pid;
}

int proc_all(struct proc_list *list)
{
    if (proc.dir < 0 || each_number(proc.dir, add_process, list))
        return -1;
    if (list->count)
        qsort(list->p, list->count, sizeof *list->p, by_pid);
    return 0;
}

static void add_pids(const char *text, struct proc_list *list)
{
    char *end;
    for (pid_t pid; (pid = (pid_t)strtol(text, &end, 10)) > 0; text = end)
        add_process(pid, list);
}

struct task_walk {
    pid_t pid;
    struct proc_list *list;
};

static void add_task_children(pid_t task, void *arg)
{
    struct task_walk *w = arg;
    char name[64], b[4096];
    snprintf(name, sizeof name, "%d/task/%d/children", (int)w->pid, (int)task);
    if (proc_file(name, b, sizeof b) > 0)
        add_pids(b, w->list);
}

int proc_children(pid_t pid, struct proc_list *list)
{
    char name[32];
    snprintf(name, sizeof name, "%d/task", (int)pid);
    int dir = openat(proc.dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return -1;
    struct task_walk w = {pid, list};
    int r = each_number(dir, add_task_children, &w);
    close(dir);
    return r;
}

int proc_own_children(pid_t *pids, size_t max)
{
    char b[4096];
    size_t count = 0, have = 0;
    off_t at = 0;
    if (proc.children < 0)
        return -1;
    for (;;) {
        ssize_t n = pread(proc.children, b + have, sizeof b - 1 - have, at);
        at += n > 0 ? n : 0;
        have += n > 0 ? (size_t)n : 0;
        b[have] = 0;
        /* Each pid is followed by a blank; what has none yet is cut and waits for the rest. */
        char *p = b, *blank;
        while ((blank = strchr(p, ' ')) && count < max) {
            pids[count++] = (pid_t)strtol(p, NULL, 10);
            p = blank + 1;
        }
        have -= (size_t)(p - b);
        memmove(b, p, have);
        if (n <= 0 || count == max)
            return (int)count;
    }
}
