/* What a hostile agent may say about streams: no frame ever reaches a run that is gone. */
#include "common/base.h"

#include "jobs-runner/housekeeper.h"
#include "jobs-runner/outbox.h"
#include "jobs-runner/queries.h"
#include "jobs-runner/run.h"
#include "jobs-runner/run_internal.h"
#include "tests/unit/support.h"

#include <sys/socket.h>

static struct runner r;
static struct settings cfg;
static struct sandbox *sb;
static int agent; /* our end */

static void set(char **field, const char *value)
{
    free(*field);
    *field = xstrdup(value);
}

static void on_hello(void *arg, const unsigned char *p, size_t n)
{
    (void)arg;
    (void)p;
    (void)n;
}

static void on_lost(void *arg, const struct err *why)
{
    (void)arg;
    (void)why;
}

static int begin(void **state)
{
    struct err e = ERR_INIT;
    int fds[2];
    const struct link_events ev = {.hello = on_hello, .lost = on_lost};
    if (tmp_setup(state) < 0 || settings_load(&cfg, NULL, &e) < 0)
        return -1;
    r = (struct runner){.cfg = &cfg, .doorbell_fd = -1};
    set(&cfg.data_dir, tmp_path("data"));
    set(&cfg.run_dir, tmp_path("run"));
    set(&cfg.state_db, tmp_path("state.db"));
    check(layout_create(&cfg, &e) == 0 && sd_event_new(&r.loop) >= 0);
    check(db_open(&r.db, cfg.state_db, runner_queries, Q_COUNT, &e) == 0);
    check(housekeeper_new(&r, &r.housekeeper, &e) == 0 && outbox_new(&r, &r.outbox, &e) == 0);
    check(sandbox_new_default(&r, "box", &sb, &e) == 0);
    check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    agent = fds[1];
    check(link_begin(&r, fds[0], &ev, &sb->link, &e) == 0);
    return 0;
}

static int end(void **state)
{
    outbox_flush(r.outbox);
    runs_free(&r);
    sandboxes_free(&r);
    r.outbox = outbox_free(r.outbox);
    r.housekeeper = housekeeper_free(r.housekeeper);
    db_close(&r.db);
    r.loop = sd_event_unref(r.loop);
    settings_release(&cfg);
    closep(&agent);
    return tmp_teardown(state);
}

/* As after a restart: it has gone to an agent that is not connected yet. */
static struct run *sent_run(const char *sandbox)
{
    struct request q = {.r = &r, .id = 1};
    struct err e = ERR_INIT;
    char args[128];
    int n = snprintf(args, sizeof args, "{\"command\":\"true\",\"sandbox\":\"%s\"}", sandbox);
    ulid_new(q.run_id);
    check(json_parse(args, (size_t)n, &q.args, &e) == 0);
    struct run *run = run_restore(&q);
    run->state = RUN_SENT;
    return run;
}

static struct run_report report(const struct run *run, uint32_t stream)
{
    struct run_report st = {.stream = stream, .running = true};
    memcpy(st.id, run->id, sizeof st.id);
    return st;
}

static void agent_sends(enum wire_type type, uint32_t stream)
{
    unsigned char h[WIRE_HEADER];
    wire_header_put(h, &(struct wire_header){.type = (uint8_t)type, .stream = stream});
    assert_int_equal(write(agent, h, sizeof h), sizeof h);
    while (sd_event_run(r.loop, 0) > 0)
        ;
}

static bool agent_got(enum wire_type type, uint32_t stream)
{
    static unsigned char got[65536];
    ssize_t n = read(agent, got, sizeof got);
    struct wire_header h;
    for (size_t at = 0; n > 0 && at + WIRE_HEADER <= (size_t)n; at += WIRE_HEADER + h.length) {
        assert_int_equal(wire_header_get(got + at, &h), 0);
        if (h.type == type && h.stream == stream)
            return true;
    }
    return false;
}

static void a_run_has_one_stream(void **state)
{
    (void)state;
    struct run *run = sent_run("box");
    const struct run_report first = report(run, 5), second = report(run, 6);
    run_found(sb, &first);
    run_found(sb, &second);
    assert_int_equal(run->stream, 5);
    agent_sends(WIRE_EXIT, 5);
    assert_null(run_find(&r, first.id));
    agent_sends(WIRE_OUTPUT, 6);
    agent_sends(WIRE_EXIT, 6);
}

static void a_stream_has_one_run(void **state)
{
    (void)state;
    struct run *one = sent_run("box"), *two = sent_run("box");
    const struct run_report first = report(one, 5), second = report(two, 5);
    run_found(sb, &first);
    run_found(sb, &second);
    assert_int_equal(two->stream, 0);
    run_abandon(two, "test");
    agent_sends(WIRE_STARTED, 5);
    assert_int_equal(one->state, RUN_RUNNING);
}

static void a_run_of_another_sandbox_is_not_found(void **state)
{
    (void)state;
    struct run *run = sent_run("other");
    const struct run_report st = report(run, 5);
    run_found(sb, &st);
    assert_int_equal(run->stream, 0);
    assert_true(agent_got(WIRE_DONE, 5));
}

static void new_numbers_are_free_ones(void **state)
{
    (void)state;
    struct run *run = sent_run("box");
    const struct run_report st = report(run, 1);
    run_found(sb, &st);
    assert_int_equal(link_stream_add(sb->link, 0, run_frame, NULL), 2);
    link_set_next_stream(sb->link, UINT32_MAX);
    assert_true(link_stream_add(sb->link, 0, run_frame, NULL) == UINT32_MAX);
    assert_int_equal(link_stream_add(sb->link, 0, run_frame, NULL), 3);
}

static void a_stop_reaches_an_agent_that_comes_back(void **state)
{
    (void)state;
    struct run *run = sent_run("box");
    const struct run_report st = report(run, 5);
    run_signal(run, SIGTERM, true, 2000, NULL);
    assert_false(agent_got(WIRE_SIGNAL, 5));
    run_found(sb, &st);
    assert_true(agent_got(WIRE_SIGNAL, 5));
}

static void what_never_started_and_was_stopped_is_not_sent(void **state)
{
    (void)state;
    struct run *run = sent_run("box");
    const struct run_report st = report(run, 0);
    run_signal(run, SIGTERM, true, 2000, NULL);
    runs_settled(sb);
    assert_null(run_find(&r, st.id));
    assert_false(agent_got(WIRE_RUN, 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_run_has_one_stream, begin, end),
        cmocka_unit_test_setup_teardown(a_stream_has_one_run, begin, end),
        cmocka_unit_test_setup_teardown(a_run_of_another_sandbox_is_not_found, begin, end),
        cmocka_unit_test_setup_teardown(new_numbers_are_free_ones, begin, end),
        cmocka_unit_test_setup_teardown(a_stop_reaches_an_agent_that_comes_back, begin, end),
        cmocka_unit_test_setup_teardown(what_never_started_and_was_stopped_is_not_sent, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
