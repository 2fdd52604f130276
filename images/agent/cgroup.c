#include "images/agent/cgroup.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct {
    int oom; /* the file with an oom_kill line */
    uint64_t seen;
} cg = {.oom = -1};

static int open_first(const char *v2, const char *v1)
{
    int fd = open(v2, O_RDONLY | O_CLOEXEC);
    return fd >= 0 ? fd : open(v1, O_RDONLY | O_CLOEXEC);
}

void cgroup_init(void)
{
    cg.oom = open_first("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control");
    (void)cgroup_oom_kills();
}

uint64_t cgroup_oom_kills(void)
{
    static const char key[] = "oom_kill ";
    char b[512];
    ssize_t n = cg.oom < 0 ? 0 : pread(cg.oom, b, sizeof b - 1, 0);
    if (n <= 0)
        return cg.seen;
    b[n] = 0;
    for (const char *line = b; line; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (!strncmp(line, key, sizeof key - 1))
            cg.seen = strtoull(line + sizeof key - 1, NULL, 10);
    }
    return cg.seen;
}

uint64_t cgroup_oom_seen(void)
{
    return cg.seen;
}

static bool read_number(const char *v2, const char *v1, uint64_t *ret)
{
    char b[32];
    int fd = open_first(v2, v1);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, b, sizeof b - 1);
    close(fd);
    if (n <= 0)
        return false;
    b[n] = 0;
    char *end;
    *ret = strtoull(b, &end, 10);
    return end != b; /* "max" is not a number */
}

bool cgroup_pids(uint64_t *now, uint64_t *max)
{
    return read_number("/sys/fs/cgroup/pids.current", "/sys/fs/cgroup/pids/pids.current", now) &&
           read_number("/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/pids/pids.max", max);
}
