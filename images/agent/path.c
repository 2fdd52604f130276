#include "images/agent/path.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LINKS_MAX 40 /* as many as the kernel follows */

static const struct kind {
    mode_t type;
    char letter;
    const char *text;
} kinds[] = {
    {S_IFREG, 'f', "a regular file"},  {S_IFDIR, 'd', "a directory"},
    {S_IFLNK, 'l', "a symbolic link"}, {S_IFIFO, 'p', "a FIFO"},
    {S_IFSOCK, 's', "a socket"},       {S_IFCHR, 'c', "a character device"},
    {S_IFBLK, 'b', "a block device"},
};

static const struct kind *kind_of(mode_t mode)
{
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (kinds[i].type == (mode & S_IFMT))
            return &kinds[i];
    return &kinds[0];
}

const char *path_kind(mode_t mode)
{
    return kind_of(mode)->text;
}

char path_letter(mode_t mode)
{
    return kind_of(mode)->letter;
}

static int too_long(void)
{
    errno = ENAMETOOLONG;
    return -1;
}

int path_of_request(const struct fields *f, char out[PATH_MAX])
{
    const struct wire_field *v = &f->last[WT_PATH];
    size_t lead = v->n && v->p[0] == '/' ? 0 : sizeof AGENT_WORKSPACE;
    if (!fields_has(f, WT_PATH) || memchr(v->p, 0, v->n)) {
        errno = EINVAL;
        snprintf(out, PATH_MAX, "the path");
        return -1;
    }
    if (v->n + lead >= PATH_MAX) {
        snprintf(out, PATH_MAX, "%.60s...", (const char *)v->p);
        return too_long();
    }
    memcpy(out, AGENT_WORKSPACE "/", lead);
    memcpy(out + lead, v->p, v->n);
    out[lead + v->n] = 0;
    return 0;
}

/* Put the target of a link in the place of the link's name. */
static int replace_last(char path[PATH_MAX], const char *target, size_t n)
{
    const char *slash = strrchr(path, '/');
    size_t keep = target[0] == '/' || !slash ? 0 : (size_t)(slash - path) + 1;
    if (keep + n >= PATH_MAX)
        return too_long();
    memcpy(path + keep, target, n);
    path[keep + n] = 0;
    return 0;
}

int path_follow(char path[PATH_MAX])
{
    char target[PATH_MAX];
    for (int i = 0; i < LINKS_MAX; i++) {
        ssize_t n = readlink(path, target, sizeof target);
        if (n < 0) /* not a link, or nothing there */
            return errno == EINVAL || errno == ENOENT ? 0 : -1;
        if ((size_t)n == sizeof target)
            return too_long();
        if (replace_last(path, target, (size_t)n))
            return -1;
    }
    errno = ELOOP;
    return -1;
}

int path_make_parents(char path[PATH_MAX])
{
    for (char *p = strchr(path + 1, '/'); p; p = strchr(p + 1, '/')) {
        *p = 0;
        int bad = mkdir(path, 0755) && errno != EEXIST;
        *p = '/';
        if (bad)
            return -1;
    }
    return 0;
}

static void fd_name(int fd, char out[64])
{
    snprintf(out, 64, "/proc/self/fd/%d", fd);
}

int path_reopen(int fd, int flags)
{
    char name[64];
    fd_name(fd, name);
    return open(name, flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

void path_of_fd(int fd, char out[PATH_MAX])
{
    char name[64];
    fd_name(fd, name);
    ssize_t n = readlink(name, out, PATH_MAX - 1);
    out[n > 0 ? n : 0] = 0;
}
