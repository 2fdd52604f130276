#include "common/base.h"

#include "jobs-runner/memory.h"

#include <sys/mman.h>

/* Text is mapped from its file and never written, so nothing is lost when it is dropped. */
static void forget(const char *line)
{
    uintptr_t from, to;
    char perms[5];
    int path = 0;
    if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %4s %*s %*s %*s %n", &from, &to, perms, &path) < 3)
        return;
    if (streq(perms, "r-xp") && path > 0 && line[path] == '/') {
        union {
            uintptr_t number;
            void *at;
        } start = {.number = from};
        (void)madvise(start.at, to - from, MADV_DONTNEED);
    }
}

void memory_forget_code(void)
{
    _cleanup_fclose_ FILE *f = fopen("/proc/self/maps", "re");
    _cleanup_free_ char *line = NULL;
    size_t cap = 0;
    while (f && getline(&line, &cap, f) >= 0)
        forget(line);
}
