#include "common/base.h"

#include "common/clock.h"
#include "common/runlog.h"
#include "common/wire.h"
#include "fcgi/queries.h"
#include "fcgi/rpc.h"
#include "fcgi/tool.h"
#include "fcgi/tools.h"
#include "tests/unit/support.h"

/* The other side of the queue, step by step: statements of its own on a connection of its own. */
enum { T_NEXT, T_ANSWER, T_PROGRESS, T_STARTED, T_COUNT, T_RUN, T_SANDBOX, T_QUERIES };

static const struct db_query test_queries[T_QUERIES] = {
    [T_NEXT] = {"next", "SELECT id, kind, args, reply FROM requests WHERE state=0 LIMIT 1"},
    [T_ANSWER] = {"answer", "UPDATE requests SET state=2, ok=?, result=? WHERE id=?"},
    [T_PROGRESS] = {"progress", "UPDATE requests SET state=1, progress=? WHERE id=?"},
    [T_STARTED] = {"started", "UPDATE requests SET state=1, run_id=? WHERE id=?"},
    [T_COUNT] = {"count", "SELECT count(*) FROM requests"},
    [T_RUN] = {"run",
               "INSERT INTO runs(id, sandbox, generation, job, command, status, exit_code,"
               " started_at, ended_at, timeout_ms, log) VALUES(?,'s',1,1,'make',?,?,?,?,1,1)"},
    [T_SANDBOX] = {"sandbox",
                   "INSERT INTO sandboxes(name, state, generation, image, cpus, memory, pids,"
                   " network, runtime, env, created_at, last_used)"
                   " VALUES(?,'running',1,'i',1,1,1,'n','','{}',1,?)"},
};

static struct settings settings;
static struct app app;
static struct db other;
static int bell = -1;

static void replace(char **at, const char *value)
{
    free(*at);
    *at = xstrdup(value);
}

static int setup(void **state)
{
    struct err e = ERR_INIT;
    if (tmp_setup(state) < 0 || settings_load(&settings, NULL, &e) < 0 ||
        tools_load(&settings, &e) < 0)
        return -1;
    replace(&settings.data_dir, tmp_path("data"));
    replace(&settings.run_dir, tmp_path("run"));
    replace(&settings.state_db, tmp_path("state.db"));
    if (app_init(&app, &settings, &e) < 0 || app_open(&app, &e) < 0 ||
        db_open(&other, settings.state_db, test_queries, T_QUERIES, &e) < 0)
        return -1;
    return 0;
}

static int teardown(void **state)
{
    app_release(&app);
    db_close(&other);
    closep(&bell);
    bell = -1;
    tools_unload();
    settings_release(&settings);
    return tmp_teardown(state);
}

static void runner_starts(void)
{
    bell = open(tmp_path("run/doorbell"), O_RDWR | O_NONBLOCK | O_CLOEXEC);
    assert_true(bell >= 0);
}

static void runner_dies(void)
{
    closep(&bell);
    bell = -1;
}

static void ring_back(const char *reply, int64_t id)
{
    struct buf path = BUF_INIT(PATH_MAX);
    unsigned char bytes[8];
    layout_reply(&settings, reply, &path);
    wire_u64_put(bytes, (uint64_t)id);
    assert_int_equal(bell_ring(path.p, bytes, sizeof bytes), BELL_RUNG);
    buf_release(&path);
}

/* The oldest queued request; checks its kind. */
static int64_t next_request(const char *kind, char reply[64])
{
    struct err e = ERR_INIT;
    assert_int_equal(db_row(&other, T_NEXT, &e, ""), 1);
    int64_t id = db_int(&other, T_NEXT, 0);
    assert_string_equal(db_text(&other, T_NEXT, 1), kind);
    (void)snprintf(reply, 64, "%s", db_text(&other, T_NEXT, 3));
    db_done(&other, T_NEXT);
    return id;
}

static void answer(int64_t id, const char *reply, bool ok, const char *result)
{
    struct err e = ERR_INIT;
    assert_int_equal(db_run(&other, T_ANSWER, &e, "iti", (int64_t)ok, result, id), 0);
    ring_back(reply, id);
}

static int64_t rows(void)
{
    struct err e = ERR_INIT;
    assert_int_equal(db_row(&other, T_COUNT, &e, ""), 1);
    int64_t n = db_int(&other, T_COUNT, 0);
    db_done(&other, T_COUNT);
    return n;
}

struct started {
    struct call call;
    struct json *args;
    int state;
};

static void start(struct started *s, const char *tool, const char *json)
{
    struct err e = ERR_INIT;
    struct args args = {0};
    const struct tool *t = tools_find(tool, SET_ALL, &args.renames);
    assert_non_null(t);
    assert_int_equal(json_parse(json, strlen(json), &s->args, &e), 0);
    args.obj = s->args;
    call_init(&s->call, &app, t, args);
    s->state = call_start(&s->call);
}

static void finish(struct started *s)
{
    call_release(&s->call);
    s->args = json_free(s->args);
}

static void an_answer_is_handed_on(void **state)
{
    (void)state;
    struct started s;
    char reply[64];
    runner_starts();
    start(&s, "exec", "{\"command\":\"true\",\"env\":{\"A\":5}}");
    assert_int_equal(s.state, CALL_WAITS);
    char byte;
    assert_int_equal(read(bell, &byte, 1), 1);
    int64_t id = next_request("exec", reply);
    assert_true(id > 0 && id < (int64_t)1 << 53);
    answer(id, reply, true, "{\"exit_code\":0}");
    runner_dispatch(&app.runner);
    assert_true(call_ready(&s.call));
    assert_int_equal(call_resume(&s.call), CALL_DONE);
    assert_string_equal(s.call.out.p, "{\"exit_code\":0}");
    assert_false(s.call.is_error);
    finish(&s);
    assert_int_equal(rows(), 1);
    runner_tidy(&app.runner);
    assert_int_equal(rows(), 0);
}

static void an_error_is_handed_on(void **state)
{
    (void)state;
    struct started s;
    char reply[64];
    runner_starts();
    start(&s, "stop_job", "{\"job_id\":\"01m8m0ym8vjht5xs5vhk1bc2av\"}");
    assert_int_equal(s.state, CALL_DONE); /* no such job: no need to ask */
    assert_true(s.call.is_error);
    finish(&s);
    start(&s, "exec", "{\"command\":\"true\"}");
    answer(next_request("exec", reply), reply, false, "{\"error\":\"e\",\"code\":\"c\"}");
    runner_dispatch(&app.runner);
    assert_int_equal(call_resume(&s.call), CALL_DONE);
    assert_true(s.call.is_error);
    assert_string_equal(s.call.out.p, "{\"error\":\"e\",\"code\":\"c\"}");
    finish(&s);
}

static void a_runner_that_is_down_is_told_at_once(void **state)
{
    (void)state;
    struct started s;
    start(&s, "exec", "{\"command\":\"true\"}");
    assert_int_equal(s.state, CALL_DONE);
    assert_true(s.call.is_error);
    assert_non_null(strstr(s.call.out.p, "\"error\":\"the jobs-runner is not running\""));
    assert_non_null(strstr(s.call.out.p, "runner_down"));
    assert_non_null(strstr(s.call.out.p, "make up"));
    finish(&s);
    assert_int_equal(rows(), 0);
    /* The descriptor that was kept belongs to a runner that has died. */
    runner_starts();
    start(&s, "exec", "{\"command\":\"true\"}");
    assert_int_equal(s.state, CALL_WAITS);
    finish(&s);
    runner_dies();
    start(&s, "exec", "{\"command\":\"true\"}");
    assert_non_null(strstr(s.call.out.p, "runner_down"));
    finish(&s);
}

static void the_runner_may_die_and_come_back(void **state)
{
    (void)state;
    struct started s;
    char reply[64];
    runner_starts();
    start(&s, "exec", "{\"command\":\"true\"}");
    runner_dies();
    app.runner.last_sweep_us = 0;
    runner_dispatch(&app.runner);
    assert_false(call_ready(&s.call));
    runner_starts();
    answer(next_request("exec", reply), reply, true, "{\"exit_code\":3}");
    runner_dispatch(&app.runner);
    assert_int_equal(call_resume(&s.call), CALL_DONE);
    assert_string_equal(s.call.out.p, "{\"exit_code\":3}");
    finish(&s);
}

static void the_deadline_names_the_run(void **state)
{
    (void)state;
    struct started s;
    struct err e = ERR_INIT;
    char reply[64];
    runner_starts();
    start(&s, "exec", "{\"command\":\"true\"}");
    int64_t id = next_request("exec", reply);
    assert_int_equal(db_run(&other, T_STARTED, &e, "ti", "01m8m0ym8vjht5xs5vhk1bc2av", id), 0);
    runner_dies();
    s.call.request.deadline_us = 1;
    runner_dispatch(&app.runner);
    assert_true(call_ready(&s.call));
    assert_int_equal(call_resume(&s.call), CALL_DONE);
    assert_true(s.call.is_error);
    assert_non_null(
        strstr(s.call.out.p, "get_job {\\\"job_id\\\":\\\"01m8m0ym8vjht5xs5vhk1bc2av\\\"}"));
    finish(&s);
}

/* Members of a batch: the one that is done must not keep the worker awake for the other. */
static void who_has_its_answer_keeps_nobody_awake(void **state)
{
    (void)state;
    struct started one, two;
    char reply[64];
    runner_starts();
    start(&one, "exec", "{\"command\":\"true\"}");
    answer(next_request("exec", reply), reply, true, "{}");
    start(&two, "exec", "{\"command\":\"true\"}");
    runner_dispatch(&app.runner);
    assert_int_equal(runner_timeout(&app.runner, clock_mono_us()), 0);
    assert_int_equal(call_resume(&one.call), CALL_DONE);
    assert_false(call_ready(&two.call));
    assert_true(runner_timeout(&app.runner, clock_mono_us()) > 100);
    finish(&one);
    answer(next_request("exec", reply), reply, true, "{}");
    runner_dispatch(&app.runner);
    assert_true(call_ready(&two.call));
    finish(&two);
}

static void a_missed_bell_is_found(void **state)
{
    (void)state;
    struct started s;
    struct err e = ERR_INIT;
    char reply[64];
    runner_starts();
    start(&s, "exec", "{\"command\":\"true\"}");
    int64_t id = next_request("exec", reply);
    assert_int_equal(db_run(&other, T_ANSWER, &e, "iti", (int64_t)1, "{}", id), 0);
    app.runner.last_sweep_us = 0;
    runner_dispatch(&app.runner);
    assert_true(call_ready(&s.call));
    finish(&s);
}

static void progress_is_news_once(void **state)
{
    (void)state;
    struct started s;
    struct err e = ERR_INIT;
    char reply[64];
    runner_starts();
    start(&s, "exec", "{\"command\":\"true\"}");
    int64_t id = next_request("exec", reply);
    const char *told = "{\"message\":\"m\",\"elapsed_ms\":5}";
    for (int i = 0; i < 2; i++) {
        assert_int_equal(db_run(&other, T_PROGRESS, &e, "ti", told, id), 0);
        ring_back(reply, id);
        runner_dispatch(&app.runner);
        assert_int_equal(s.call.request.progressed, i == 0);
        s.call.request.progressed = false;
    }
    assert_string_equal(s.call.request.progress.p, told);
    finish(&s);
}

static void strangers_and_rubbish_are_ignored(void **state)
{
    (void)state;
    struct started a, b;
    char reply[64];
    runner_starts();
    start(&a, "exec", "{\"command\":\"a\"}");
    start(&b, "exec", "{\"command\":\"b\"}");
    (void)next_request("exec", reply);
    ring_back(reply, 1);
    ring_back(reply, a.call.request.id); /* rung, but not answered */
    assert_int_equal(write(app.runner.reply_fd, "xyz", 3), 3);
    runner_dispatch(&app.runner);
    assert_false(call_ready(&a.call));
    answer(b.call.request.id, reply, true, "{\"b\":1}");
    app.runner.last_sweep_us = 0;
    runner_dispatch(&app.runner);
    assert_false(call_ready(&a.call));
    assert_true(call_ready(&b.call));
    finish(&a);
    finish(&b);
}

/* --- get_job reads what is stored ----------------------------------------------------------- */

#define JOB "01m8m0ym8vjht5xs5vhk1bc2av"

static void store_job(const char *log, bool live)
{
    struct err e = ERR_INIT;
    struct runlog l = RUNLOG_INIT;
    struct buf path = BUF_INIT(PATH_MAX);
    int64_t now = clock_real_ms();
    layout_run_log(&settings, JOB, &path);
    assert_int_equal(runlog_open_write(&l, path.p, 4096, &e), 0);
    assert_int_equal(runlog_append(&l, log, strlen(log), &e), 0);
    runlog_close(&l);
    buf_release(&path);
    int64_t zero = 0;
    assert_int_equal(db_run(&other, T_RUN, &e, "ttIiI", JOB, live ? "running" : "finished",
                            live ? NULL : &zero, now - 2000, live ? NULL : &now),
                     0);
}

static void get_job(const char *args, const char *has)
{
    struct started s;
    start(&s, "get_job", args);
    assert_int_equal(s.state, CALL_DONE);
    if (!strstr(s.call.out.p, has))
        fail_msg("%s: %s", args, s.call.out.p);
    finish(&s);
}

static void a_job_is_shown_without_the_runner(void **state)
{
    (void)state;
    store_job("one\ntwo\nthree\n", false);
    get_job("{\"job_id\":\"" JOB "\"}", "\"log_tail\":\"one\\ntwo\\nthree\\n\"");
    get_job("{\"job_id\":\"01M8M0YM8VJHT5XS5VHK1BC2AV\"}",
            "\"status\":\"finished\",\"exit_code\":0");
    get_job("{\"job_id\":\"" JOB "\",\"tail_lines\":1}",
            "\"log_bytes\":14,\"log_tail\":\"three\\n\",\"log_offset\":8,\"next_offset\":14");
    get_job("{\"job_id\":\"" JOB "\",\"tail_lines\":0}", "\"log_tail\":\"\"");
    get_job("{\"job_id\":\"" JOB "\",\"offset\":4}",
            "\"log_tail\":\"two\\nthree\\n\",\"log_offset\":4,\"next_offset\":14");
    get_job("{\"job_id\":\"" JOB "\",\"offset\":999}", "\"next_offset\":14");
    get_job("{\"job_id\":\"" JOB "\",\"offset\":-1}", "invalid_argument");
    get_job("{\"job_id\":\"00000000000000000000000000\"}", "expired");
    get_job("{\"job_id\":\"7zzzzzzzzzzzzzzzzzzzzzzzzz\"}", "not_found");
    get_job("{\"job_id\":\"../../etc/passwd\"}", "invalid_argument");
}

static void a_live_job_without_the_runner_says_so(void **state)
{
    (void)state;
    store_job("half \xe6\x97", true);
    get_job("{\"job_id\":\"" JOB "\"}", "the jobs-runner is not running: this is what is stored");
    get_job("{\"job_id\":\"" JOB "\",\"wait\":0}", "\"status\":\"running\"");
    get_job("{\"job_id\":\"" JOB "\",\"wait\":0}", "\"log_tail\":\"half \"");
    get_job("{\"job_id\":\"" JOB "\",\"wait\":0,\"offset\":0}", "\"next_offset\":5,\"more\":true");
}

static void dropped_bytes_are_counted(void **state)
{
    (void)state;
    struct buf log = BUF_INIT(1 << 16);
    for (int i = 0; i < 1000; i++)
        buf_addf(&log, "line %04d\n", i);
    store_job(log.p, false); /* 10000 bytes into 4096 */
    get_job("{\"job_id\":\"" JOB "\",\"offset\":1024}", "\"dropped_bytes\":5904");
    get_job("{\"job_id\":\"" JOB "\",\"offset\":0}", "\"next_offset\":1020,\"more\":true");
    get_job("{\"job_id\":\"" JOB "\",\"tail_lines\":1}", "\"log_tail\":\"line 0999\\n\"");
    buf_release(&log);
}

static void sandboxes_are_listed(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct started s;
    assert_int_equal(db_run(&other, T_SANDBOX, &e, "ti", "s", (int64_t)5), 0);
    store_job("", false);
    start(&s, "list_all", "{}");
    assert_int_equal(s.state, CALL_DONE);
    assert_non_null(strstr(s.call.out.p, "{\"items\":[{\"name\":\"s\",\"status\":\"running\""));
    assert_null(strstr(s.call.out.p, "\"last_used\":\"1970")); /* the run counts */
    finish(&s);
}

static void looking_makes_no_sandbox(void **state)
{
    (void)state;
    struct started s;
    start(&s, "read_text", "{\"path\":\"a\",\"sandbox\":\"nope\"}");
    assert_non_null(strstr(s.call.out.p, "there is no sandbox"));
    finish(&s);
    start(&s, "list_files", "{\"sandbox\":\"../x\"}");
    assert_non_null(strstr(s.call.out.p, "invalid_argument"));
    finish(&s);
}

static void writing_makes_the_sandbox(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct started s;
    char reply[64];
    runner_starts();
    start(&s, "write_text", "{\"path\":\"a\",\"content\":\"x\",\"sandbox\":\"w\"}");
    assert_int_equal(s.state, CALL_WAITS);
    int64_t id = next_request("create", reply);
    assert_int_equal(db_run(&other, T_SANDBOX, &e, "ti", "w", (int64_t)5), 0);
    assert_int_equal(mkdir(tmp_path("data/w"), 0755), 0);
    assert_int_equal(mkdir(tmp_path("data/w/workspace"), 0755), 0);
    answer(id, reply, true, "{\"name\":\"w\"}");
    runner_dispatch(&app.runner);
    assert_int_equal(call_resume(&s.call), CALL_DONE);
    assert_non_null(
        strstr(s.call.out.p, "{\"path\":\"/workspace/a\",\"size\":1,\"sandbox_created\":true"));
    finish(&s);
    assert_int_equal(access(tmp_path("data/w/workspace/a"), F_OK), 0);
}

static void a_link_goes_to_the_sandbox(void **state)
{
    (void)state;
    struct err e = ERR_INIT;
    struct started s;
    char reply[64];
    runner_starts();
    assert_int_equal(db_run(&other, T_SANDBOX, &e, "ti", "w", (int64_t)5), 0);
    assert_int_equal(mkdir(tmp_path("data/w"), 0755), 0);
    assert_int_equal(mkdir(tmp_path("data/w/workspace"), 0755), 0);
    assert_int_equal(symlink("/etc", tmp_path("data/w/workspace/leak")), 0);
    start(&s, "read_text", "{\"path\":\"leak/hosts\",\"sandbox\":\"w\",\"start_line\":2}");
    assert_int_equal(s.state, CALL_WAITS);
    answer(next_request("file_read", reply), reply, true,
           "{\"path\":\"/etc/hosts\",\"type\":\"file\",\"size\":6,\"data\":\"YQpiCmMK\"}");
    runner_dispatch(&app.runner);
    assert_int_equal(call_resume(&s.call), CALL_DONE);
    assert_non_null(
        strstr(s.call.out.p, "{\"path\":\"/etc/hosts\",\"content\":\"b\\nc\\n\",\"size\":6"));
    finish(&s);
}

/* --- tasks ---------------------------------------------------------------------------------- */

#define TASKS "{\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}}"

/* Start a message of the modern era, with or without the extension. */
static void modern(struct exchange *x, const char *method, const char *params, bool declared)
{
    struct buf body = BUF_INIT(1 << 16);
    buf_addf(&body,
             "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":{%s,\"_meta\":{"
             "\"io.modelcontextprotocol/protocolVersion\":\"2026-07-28\","
             "\"io.modelcontextprotocol/clientCapabilities\":%s}}}",
             method, params, declared ? TASKS : "{}");
    exchange_init(x, &app, NULL, &body);
    exchange_start(x);
}

static void expect_answer(struct exchange *x, const char *has)
{
    struct buf out = BUF_INIT(1 << 20);
    assert_true(exchange_step(x));
    exchange_answer(x, &out);
    if (!strstr(out.p, has))
        fail_msg("%s", out.p);
    buf_release(&out);
    exchange_release(x);
}

static void a_job_is_a_task_for_who_declares_it(void **state)
{
    (void)state;
    struct exchange x;
    char reply[64];
    const char *call = "\"name\":\"run_background\",\"arguments\":{\"command\":\"x\"}";
    runner_starts();
    store_job("", true);
    for (int declared = 0; declared < 2; declared++) {
        modern(&x, "tools/call", call, declared);
        answer(next_request("run", reply), reply, true,
               "{\"job_id\":\"" JOB "\",\"status\":\"running\"}");
        runner_dispatch(&app.runner);
        expect_answer(&x, declared ? "\"resultType\":\"task\",\"taskId\":\"" JOB
                                     "\",\"status\":\"working\""
                                   : "\"resultType\":\"complete\",\"content\":[");
    }
    modern(&x, "tasks/cancel", "\"taskId\":\"" JOB "\"", true);
    answer(next_request("stop", reply), reply, true, "{\"stopped\":true}");
    runner_dispatch(&app.runner);
    expect_answer(&x, "\"result\":{\"resultType\":\"complete\",\"_meta\"");
    modern(&x, "tasks/cancel", "\"taskId\":\"" JOB "\"", true);
    answer(next_request("stop", reply), reply, false, "{\"error\":\"no\"}");
    runner_dispatch(&app.runner);
    expect_answer(&x, "\"code\":-32603");
}

static const struct {
    int line;
    const char *method, *params;
    bool declared;
    const char *has;
} task_rows[] = {
    {ROW, "tasks/get", "\"taskId\":\"" JOB "\"", true,
     "\"status\":\"completed\",\"statusMessage\":"},
    {ROW, "tasks/get", "\"taskId\":\"" JOB "\"", true,
     "\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"{\\\"job_id\\\""},
    {ROW, "tasks/get", "\"taskId\":\"" JOB "\"", false, "\"code\":-32021"},
    {ROW, "tasks/get", "\"taskId\":\"nope\"", true, "\"code\":-32602"},
    {ROW, "tasks/get", "\"taskId\":5", true, "\"code\":-32602"},
    {ROW, "tasks/get", "\"a\":5", true, "\"code\":-32602"},
    {ROW, "tasks/cancel", "\"taskId\":\"" JOB "\"", true, "\"resultType\":\"complete\""},
    {ROW, "tasks/update", "\"taskId\":\"" JOB "\"", true, "\"resultType\":\"complete\""},
    {ROW, "tasks/update", "\"taskId\":\"nope\"", true, "\"code\":-32602"},
    {ROW, "tasks/list", "\"a\":5", true, "\"code\":-32601"},
    {ROW, "tasks/result", "\"taskId\":\"" JOB "\"", true, "\"code\":-32601"},
    {ROW, "server/discover", "\"a\":5", false,
     "\"extensions\":{\"io.modelcontextprotocol/tasks\":{}}"},
};

static void an_ended_job_is_a_completed_task(void **state)
{
    (void)state;
    store_job("out\n", false);
    for (size_t i = 0; i < ARRAY_LEN(task_rows); i++) {
        struct exchange x;
        modern(&x, task_rows[i].method, task_rows[i].params, task_rows[i].declared);
        expect_answer(&x, task_rows[i].has);
    }
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(an_answer_is_handed_on),
        TEST(an_error_is_handed_on),
        TEST(a_runner_that_is_down_is_told_at_once),
        TEST(the_runner_may_die_and_come_back),
        TEST(the_deadline_names_the_run),
        TEST(who_has_its_answer_keeps_nobody_awake),
        TEST(a_missed_bell_is_found),
        TEST(progress_is_news_once),
        TEST(strangers_and_rubbish_are_ignored),
        TEST(a_job_is_shown_without_the_runner),
        TEST(a_live_job_without_the_runner_says_so),
        TEST(dropped_bytes_are_counted),
        TEST(sandboxes_are_listed),
        TEST(looking_makes_no_sandbox),
        TEST(writing_makes_the_sandbox),
        TEST(a_link_goes_to_the_sandbox),
        TEST(a_job_is_a_task_for_who_declares_it),
        TEST(an_ended_job_is_a_completed_task),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
