#include "images/agent/floor.h"

#include "images/agent/loop.h"
#include "images/agent/spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int floor_once(uint32_t *us)
{
    static char *const argv[] = {(char *)(uintptr_t) "sh", (char *)(uintptr_t) "-c",
                                 (char *)(uintptr_t) "true", NULL};
    struct spawn s = {.argv = argv,
                      .envp = environ,
                      .file = "/bin/sh",
                      .in = SPAWN_NULL,
                      .out = SPAWN_NULL,
                      .err = SPAWN_NULL,
                      .script = -1};
    int status;
    uint64_t start = clock_us();
    pid_t pid = spawn_start(&s);
    if (pid < 0 || waitpid(pid, &status, 0) < 0)
        return -1;
    *us = (uint32_t)(clock_us() - start);
    return 0;
}

/* One of the parallel loops: its own process, writing into its own part of the shared array. */
static void floor_job(uint32_t *us, unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (floor_once(us + i))
            _exit(1);
    _exit(0);
}

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static int floor_run(uint32_t *us, unsigned count, unsigned jobs)
{
    int bad = 0, status;
    for (unsigned j = 0; j < jobs; j++) {
        unsigned from = (unsigned)((uint64_t)count * j / jobs);
        unsigned to = (unsigned)((uint64_t)count * (j + 1) / jobs);
        pid_t pid = fork();
        if (pid == 0)
            floor_job(us + from, to - from);
        if (pid < 0)
            return -1;
    }
    for (unsigned j = 0; j < jobs; j++)
        if (wait(&status) < 0 || status != 0)
            bad = -1;
    return bad;
}

int floor_main(unsigned count, unsigned jobs)
{
    size_t size = count * sizeof(uint32_t);
    uint32_t *us = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (us == MAP_FAILED)
        return 1;
    uint64_t start = clock_us();
    if (floor_run(us, count, jobs)) {
        fputs("sandbox-agent: the benchmark could not start a process\n", stderr);
        return 1;
    }
    double seconds = (double)(clock_us() - start) / 1e6;
    qsort(us, count, sizeof *us, by_value);
    printf("{\"n\":%u,\"j\":%u,\"p50_us\":%u,\"p90_us\":%u,\"p99_us\":%u,\"per_second\":%.1f}\n",
           count, jobs, us[count / 2], us[(size_t)count * 9 / 10], us[(size_t)count * 99 / 100],
           (double)count / seconds);
    return 0;
}
