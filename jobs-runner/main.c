/* jobs-runner: the daemon that owns sandboxes and runs. See ARCHITECTURE.md. */
#include "common/base.h"

#include "common/fs.h"
#include "common/layout.h"
#include "common/log.h"
#include "jobs-runner/docker.h"
#include "jobs-runner/gc.h"
#include "jobs-runner/housekeeper.h"
#include "jobs-runner/memory.h"
#include "jobs-runner/outbox.h"
#include "jobs-runner/queries.h"
#include "jobs-runner/requests.h"
#include "jobs-runner/run.h"
#include "jobs-runner/sandbox.h"

#include <getopt.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <systemd/sd-daemon.h>

static const char usage[] =
    "usage: jobs-runner [OPTION]...\n"
    "The daemon of sandbox-mcp: makes sandboxes with Docker and runs commands in them.\n\n"
    "  --env-file FILE   read SMCP_* settings from FILE (the environment wins)\n"
    "  --check-config    print the settings in force and exit\n"
    "  --version         print the version and exit\n"
    "  --help            print this and exit\n\n"
    "It stays in the foreground, logs to stderr, and stops on SIGTERM; sandboxes and the\n"
    "commands in them go on, and are taken up again at the next start.\n";

/* A predecessor that is just ending (killed a moment ago) still holds the lock for an instant. */
static int lock_patiently(int fd)
{
    for (int i = 0; i < 60; i++) {
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        struct timespec ts = {.tv_nsec = 50000000};
        (void)nanosleep(&ts, NULL);
    }
    return -1;
}

/* One runner a run directory: the lock lives as long as the process. */
static int take_lock(const struct settings *cfg, struct err *e)
{
    struct buf path = BUF_INIT(PATH_MAX);
    buf_addf(&path, "%s/jobs-runner.lock", cfg->run_dir);
    int fd = open(path.p, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int r = fd < 0 ? err_sys(e, "cannot open %s", path.p) : 0;
    if (r == 0 && lock_patiently(fd) < 0) {
        r = err_set(e, ERR_CONFLICT, "another jobs-runner works in %s", cfg->run_dir);
        err_fix(e, "config", "stop it first, or give this one another SMCP_RUN_DIR");
        closep(&fd);
    }
    buf_release(&path);
    return r;
}

static int find_agent(struct runner *r, struct err *e)
{
    if (*r->cfg->agent) {
        (void)snprintf(r->agent, sizeof r->agent, "%s", r->cfg->agent);
        return 0;
    }
    struct buf path = BUF_INIT(PATH_MAX - 1);
    int n = fs_program_dir(&path, e);
    buf_adds(&path, "/sandbox-agent");
    (void)snprintf(r->agent, sizeof r->agent, "%s", path.p);
    buf_release(&path);
    return n;
}

static int on_signal(sd_event_source *s, const struct signalfd_siginfo *si, void *arg)
{
    struct runner *r = arg;
    log_info("stopping on signal %u; sandboxes go on", si->ssi_signo);
    (void)sd_notify(0, "STOPPING=1");
    (void)sd_event_exit(sd_event_source_get_event(s), 0);
    (void)r;
    return 0;
}

static int watch_signals(struct runner *r, struct err *e)
{
    static const int stops[] = {SIGTERM, SIGINT};
    sigset_t set;
    (void)sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_LEN(stops); i++)
        (void)sigaddset(&set, stops[i]);
    (void)sigprocmask(SIG_BLOCK, &set, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGHUP, SIG_IGN);
    for (size_t i = 0; i < ARRAY_LEN(stops); i++) {
        int n = sd_event_add_signal(r->loop, NULL, stops[i], on_signal, r);
        errno = -n;
        if (n < 0)
            return err_sys(e, "cannot watch signals");
    }
    return 0;
}

static void raise_limits(void)
{
    struct rlimit l;
    if (getrlimit(RLIMIT_NOFILE, &l) == 0) {
        l.rlim_cur = MIN(l.rlim_max, (rlim_t)65536);
        (void)setrlimit(RLIMIT_NOFILE, &l);
    }
}

static int start(struct runner *r, struct err *e)
{
    const struct settings *cfg = r->cfg;
    if (layout_create(cfg, e) < 0 || take_lock(cfg, e) < 0 || find_agent(r, e) < 0)
        return -1;
    if (sd_event_new(&r->loop) < 0)
        return err_set(e, ERR_INTERNAL, "cannot make the event loop");
    (void)sd_event_set_watchdog(r->loop, true);
    if (watch_signals(r, e) < 0 || db_open(&r->db, cfg->state_db, runner_queries, Q_COUNT, e) < 0 ||
        db_instance(&r->db, r->instance, e) < 0 || housekeeper_new(r, &r->housekeeper, e) < 0 ||
        docker_new(r, &r->docker, e) < 0 || outbox_new(r, &r->outbox, e) < 0)
        return -1;
    return sandboxes_load(r, e) < 0 || runs_load(r, e) < 0 || requests_start(r, e) < 0
               ? -1
               : gc_start(r, e);
}

static void stop(struct runner *r)
{
    requests_stop(r);
    gc_stop(r);
    if (r->outbox) {
        outbox_flush(r->outbox); /* the answers */
        outbox_flush(r->outbox); /* what waited behind them */
    }
    runs_free(r);
    sandboxes_free(r);
    r->outbox = outbox_free(r->outbox);
    r->docker = docker_free(r->docker);
    r->housekeeper = housekeeper_free(r->housekeeper);
    db_close(&r->db);
    r->loop = sd_event_unref(r->loop);
}

static int run(const struct settings *cfg)
{
    struct runner r = {.cfg = cfg, .doorbell_fd = -1};
    struct err e = ERR_INIT;
    raise_limits();
    int result = start(&r, &e);
    if (result == 0) {
        log_info("version %s works in %s, instance %s", SMCP_VERSION, cfg->run_dir, r.instance);
        memory_forget_code();
        (void)sd_notify(0, "READY=1");
        result = sd_event_loop(r.loop);
        if (result < 0)
            log_error("the event loop failed: %s", strerror(-result));
    } else {
        log_err(LOG_LEVEL_ERROR, "cannot start", &e);
        log_error("what to do: %s", err_fix_text(&e));
    }
    stop(&r);
    return result < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

struct options {
    const char *env_file;
    bool check_config;
};

/* -1: go on; otherwise the exit status. */
static int read_options(int argc, char **argv, struct options *o)
{
    static const struct option table[] = {
        {"env-file", required_argument, NULL, 'e'},
        {"check-config", no_argument, NULL, 'c'},
        {"version", no_argument, NULL, 'v'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    int c;
    while ((c = getopt_long(argc, argv, "", table, NULL)) != -1) {
        if (c == 'e') {
            o->env_file = optarg;
        } else if (c == 'c') {
            o->check_config = true;
        } else if (c == 'v') {
            printf("jobs-runner %s\n", SMCP_VERSION);
            return EXIT_SUCCESS;
        } else {
            fputs(usage, c == 'h' ? stdout : stderr);
            return c == 'h' ? EXIT_SUCCESS : 2;
        }
    }
    return -1;
}

int main(int argc, char **argv)
{
    struct options o = {.env_file = NULL};
    int done = read_options(argc, argv, &o);
    if (done >= 0)
        return done;
    _cleanup_settings_ struct settings cfg;
    struct err e = ERR_INIT;
    log_init("jobs-runner", LOG_LEVEL_INFO);
    if (settings_load(&cfg, o.env_file, &e) < 0) {
        fprintf(stderr, "jobs-runner: %s\n  what to do: %s\n", e.msg, err_fix_text(&e));
        memset(&cfg, 0, sizeof cfg);
        return 2;
    }
    log_init("jobs-runner", (enum log_level)cfg.log_level);
    if (cfg.unknown)
        log_warn("env file: %s", cfg.unknown);
    if (!o.check_config)
        return run(&cfg);
    struct buf text = BUF_INIT(1 << 16);
    settings_print(&cfg, &text);
    fputs(text.p, stdout);
    buf_release(&text);
    return EXIT_SUCCESS;
}
