/*
 * sandbox-agent: PID 1 of every sandbox. It runs commands and reads and writes files for the
 * runner outside, over one unix socket, and reaps what nobody else reaps.
 */
#include "images/agent/base.h"

#include "common/wire.h"
#include "images/agent/cgroup.h"
#include "images/agent/conn.h"
#include "images/agent/env.h"
#include "images/agent/floor.h"
#include "images/agent/loop.h"
#include "images/agent/proc.h"
#include "images/agent/reap.h"
#include "images/agent/service.h"
#include "images/agent/spawn.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char help[] =
    "usage: sandbox-agent [--socket-dir DIR] [--any-peer]\n"
    "       sandbox-agent --bench-floor N [-j JOBS]\n"
    "       sandbox-agent --version | --help\n"
    "\n"
    "  --socket-dir DIR  serve on DIR/" WIRE_SOCKET " instead of " WIRE_DIR "\n"
    "  --any-peer        accept peers of this pid namespace too (for tests)\n"
    "  --bench-floor N   start and reap `sh -c true` N times, print the times as JSON\n"
    "  -j JOBS           that many at a time\n";

struct options {
    const char *dir;
    bool any_peer;
    unsigned long bench, jobs;
};

static int usage_error(void)
{
    fputs(help, stderr);
    return 2;
}

/* Returns -1 to go on, or the exit status. */
static int parse_options(int argc, char **argv, struct options *o)
{
    static const struct option known[] = {
        {"socket-dir", required_argument, NULL, 'd'},
        {"any-peer", no_argument, NULL, 'a'},
        {"bench-floor", required_argument, NULL, 'b'},
        {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    for (int c; (c = getopt_long(argc, argv, "j:", known, NULL)) != -1;) {
        if (c == 'd')
            o->dir = optarg;
        else if (c == 'a')
            o->any_peer = true;
        else if (c == 'b')
            o->bench = strtoul(optarg, NULL, 10);
        else if (c == 'j')
            o->jobs = strtoul(optarg, NULL, 10);
        else if (c == 'v')
            return puts("sandbox-agent " AGENT_VERSION) < 0;
        else if (c == 'h')
            return fputs(help, stdout) < 0;
        else
            return usage_error();
    }
    bool bad_bench = o->bench > 10000000 || o->jobs < 1 || o->jobs > 256;
    return optind != argc || bad_bench ? usage_error() : -1;
}

static int fail(const char *what)
{
    perror(what);
    return 1;
}

static int serve(const struct options *o)
{
    /* Nobody in the sandbox may look into the agent: not its descriptors, not its memory. */
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    umask(022);
    proc_init();
    cgroup_init();
    if (loop_init() || env_init(environ) || service_init() || reap_init())
        return fail("sandbox-agent: start");
    if (conn_listen(o->dir, o->any_peer, &service_hooks))
        return 1;
    loop_run(conn_turn_end);
    reap_shutdown();
    return 0;
}

/* Descriptors that whoever started us left open would go on into every command. */
static void close_inherited(void)
{
#ifdef SYS_close_range
    (void)syscall(SYS_close_range, 3u, ~0u, 0u);
#endif
}

/*
 * Signals that whoever started us ignored would stay ignored in every command. The C library keeps
 * a few numbers to itself, so the kernel is asked.
 */
static void default_signals(void)
{
    static const unsigned char by_default[64]; /* struct sigaction of the kernel, all zero */
    for (long sig = 1; sig <= 64; sig++)
        (void)syscall(SYS_rt_sigaction, sig, by_default, NULL, 8L);
}

int main(int argc, char **argv)
{
    struct options o = {.dir = WIRE_DIR, .jobs = 1};
    int done = parse_options(argc, argv, &o);
    if (done >= 0)
        return done;
    close_inherited();
    default_signals();
    if (spawn_init())
        return fail("sandbox-agent: /dev/null");
    return o.bench ? floor_main((unsigned)o.bench, (unsigned)o.jobs) : serve(&o);
}
