/*
 * What a hostile agent can send: the bytes go through a real socket into a link, whose streams are
 * a live run and file operations would be; the loop runs until nothing is left to read.
 */
#include "common/base.h"

#include "jobs-runner/housekeeper.h"
#include "jobs-runner/link.h"
#include "jobs-runner/outbox.h"
#include "jobs-runner/queries.h"
#include "jobs-runner/run.h"
#include "jobs-runner/run_internal.h"

#include <ftw.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct runner r;
static struct settings cfg;

static void set(char **field, const char *value)
{
    free(*field);
    *field = xstrdup(value);
}

static char dir[] = "/tmp/smcp-fuzz-XXXXXX";

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *at)
{
    (void)st;
    (void)flag;
    (void)at;
    return remove(path);
}

static void clean_up(void)
{
    (void)nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void set_up(void)
{
    struct err e = ERR_INIT;
    struct buf path = BUF_INIT(PATH_MAX);
    struct sandbox *sb = NULL;
    struct sandbox_spec spec;
    check(mkdtemp(dir) && atexit(clean_up) == 0 && settings_load(&cfg, NULL, &e) == 0);
    set(&cfg.data_dir, dir);
    set(&cfg.run_dir, dir);
    buf_addf(&path, "%s/state.db", dir);
    set(&cfg.state_db, path.p);
    buf_release(&path);
    r.cfg = &cfg;
    check(layout_create(&cfg, &e) == 0 && sd_event_new(&r.loop) >= 0);
    check(db_open(&r.db, cfg.state_db, runner_queries, Q_COUNT, &e) == 0);
    check(housekeeper_new(&r, &r.housekeeper, &e) == 0 && outbox_new(&r, &r.outbox, &e) == 0);
    sandbox_spec_default(&r, &spec);
    check(sandbox_new(&r, "default", &spec, &sb, &e) == 0);
    free(spec.env);
}

static void on_hello(void *arg, const unsigned char *payload, size_t n)
{
    (void)arg;
    struct wire_field f;
    size_t pos = 0;
    while (wire_field_next(payload, n, &pos, &f) > 0)
        ;
}

static void on_lost(void *arg, const struct err *why)
{
    (void)why;
    bool *lost = arg;
    *lost = true;
}

/* A run that was sent to the agent at the other end of the link, as stream 1. */
static struct run *live_run(struct link *l)
{
    struct request q = {.r = &r, .id = 1};
    struct err e = ERR_INIT;
    static const char args[] = "{\"command\":\"true\",\"sandbox\":\"default\"}";
    ulid_new(q.run_id);
    check(json_parse(args, sizeof args - 1, &q.args, &e) == 0);
    struct run *run = run_restore(&q);
    run->state = RUN_SENT;
    run->link = link_serial(l);
    run->stream = link_stream_add(l, 1, run_frame, run);
    return run;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int fds[2];
    bool lost = false;
    struct link *l = NULL;
    struct err e = ERR_INIT;
    if (!r.loop)
        set_up();
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    const struct link_events ev = {.hello = on_hello, .lost = on_lost, .arg = &lost};
    check(link_begin(&r, fds[0], &ev, &l, &e) == 0);
    struct sandbox *sb = sandbox_find(&r, "default");
    sb->link = l;
    const struct run *run = live_run(l);
    char id[sizeof run->id];
    memcpy(id, run->id, sizeof id);
    (void)!write(fds[1], data, size);
    (void)shutdown(fds[1], SHUT_WR);
    while (!lost && sd_event_run(r.loop, 1000) > 0)
        ;
    sb->link = link_close(l);
    if (run_find(&r, id))
        run_abandon(run_find(&r, id), "the fuzzer ended it");
    outbox_flush(r.outbox);
    (void)close(fds[1]);
    return 0;
}
