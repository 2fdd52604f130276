#include "common/base.h"

#include "tests/unit/agent_client.h"

/* Processes whose command line holds this text, in the agent's namespace. */
static long count_processes(const char *text)
{
    char command[200];
    static struct result saved;
    saved = res;
    (void)snprintf(command, sizeof command,
                   "n=0; for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | "
                   "grep -q '^%s' && n=$((n+1)); done; echo $n",
                   text);
    run(command);
    long n = strtol(res.out, NULL, 10);
    res = saved;
    return n;
}

static void leftovers_do_not_delay_and_are_counted(void **state)
{
    (void)state;
    /* How far a child has come when its parent ends is chance, so most counts are bounds. */
    static const struct {
        int line;
        const char *command;
        uint64_t least, most;
    } rows[] = {
        {ROW, "echo hi; sleep 120 &", 1, 1},
        {ROW, "echo hi; (sleep 121 | cat) &", 1, 3},
        {ROW, "echo hi; setsid sleep 122 & sleep 0.1", 1, 1},
        {ROW, "echo hi; (setsid sh -c 'sleep 123 & sleep 124; true' &); sleep 0.2", 3, 3},
        {ROW, "echo hi; (env -i setsid sleep 125 &)", 0, 1},
        {ROW, "echo hi", 0, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint64_t start = now_ms();
        run(rows[i].command);
        row_true(rows[i].line, !res.failed && res.code == 0 && !strcmp(res.out, "hi\n"));
        row_true(rows[i].line, now_ms() - start < 1000);
        row_true(rows[i].line, res.left >= rows[i].least && res.left <= rows[i].most);
    }
    nap_ms(200);
    assert_int_equal(count_processes("sleep 12"), 6);
}

static void leftovers_may_go_on_writing(void **state)
{
    (void)state;
    char command[300];
    (void)snprintf(command, sizeof command,
                   "(sleep 0.2; i=0; while [ $i -lt 30000 ]; do echo 0123456789; i=$((i+1)); done; "
                   "echo survived >%s) &",
                   tmp_path("proof"));
    run(command);
    assert_true(res.left >= 1);
    assert_int_equal(res.offset, 0);
    uint64_t until = now_ms() + PATIENCE_MS;
    while (access(tmp_path("proof"), F_OK) && now_ms() < until)
        nap_ms(10);
    assert_int_equal(access(tmp_path("proof"), F_OK), 0);
}

static void a_flooding_leftover_does_not_delay_the_end(void **state)
{
    (void)state;
    uint64_t start = now_ms();
    run("yes & sleep 0.2; echo end >&2");
    assert_true(now_ms() - start < 3000);
    assert_int_equal(res.left, 1);
    assert_string_equal(res.err, "end\n");
    run("echo two");
    assert_string_equal(res.out, "two\n");
}

static void orphans_leave_no_zombies(void **state)
{
    (void)state;
    for (int i = 0; i < 600; i++) {
        run("(sleep 0.05 &)");
        assert_false(res.failed);
    }
    nap_ms(200);
    run("grep -h State /proc/[0-9]*/status | grep -c Z; set -- /proc/[0-9]*; echo $#");
    assert_string_equal(res.out, "0\n2\n"); /* the agent and this shell */
}

/* A child that ignores TERM, in a session of its own, whose parent is gone. */
#define STUBBORN "(setsid sh -c 'trap \"\" TERM; while :; do sleep 77; done' &); "

static void a_timeout_reaches_the_whole_tree(void **state)
{
    (void)state;
    uint64_t start = now_ms();
    put_command("echo start; " STUBBORN "(sleep 77 &); sleep 77");
    put_number(WT_TIMEOUT_MS, 300);
    put_number(WT_GRACE_MS, 300);
    finish_run(start_run());
    uint64_t took = now_ms() - start;
    assert_true(took >= 500 && took < 2000);
    assert_int_equal(res.timed_out, 1);
    assert_int_equal(res.left, 0);
    assert_string_equal(res.out, "start\n");
    assert_int_equal(count_processes("sleep 77"), 0);
    assert_int_equal(count_processes("sh -c trap"), 0);
}

static void a_timeout_ends_early_when_all_obey(void **state)
{
    (void)state;
    uint64_t start = now_ms();
    put_command("trap 'echo bye; exit 7' TERM; sleep 77 & wait");
    put_number(WT_TIMEOUT_MS, 200);
    put_number(WT_GRACE_MS, 5000);
    finish_run(start_run());
    assert_true(now_ms() - start < 1500);
    assert_int_equal(res.code, 7);
    assert_string_equal(res.out, "bye\n");
    assert_int_equal(res.timed_out, 1);
}

static void a_timeout_needs_no_runner(void **state)
{
    (void)state;
    put_command(STUBBORN "sleep 77");
    put_number(WT_TIMEOUT_MS, 200);
    put_number(WT_GRACE_MS, 100);
    uint32_t stream = start_run();
    nap_ms(50);
    close(agent.fd);
    nap_ms(800);
    agent_connect();
    hello();
    assert_int_equal(count_processes("sleep 77"), 0);
    send_offset(WIRE_ATTACH, stream, 0);
    memset(&res, 0, sizeof res);
    finish_run(stream);
    assert_int_equal(res.timed_out, 1);
}

static void fifty_timeouts_at_once(void **state)
{
    (void)state;
    uint64_t start = now_ms();
    for (int i = 0; i < 50; i++) {
        put_command("(setsid sleep 78 &); sleep 78");
        put_number(WT_TIMEOUT_MS, 500);
        put_number(WT_GRACE_MS, 500);
        (void)start_run();
    }
    for (int ended = 0; ended < 50;) {
        next_frame();
        ended += got.h.type == WIRE_EXIT;
        if (got.h.type == WIRE_EXIT)
            assert_int_equal(got_number(WT_TIMED_OUT), 1);
    }
    assert_true(now_ms() - start < 4000);
    assert_int_equal(count_processes("sleep 78"), 0);
}

static void a_stop_reaches_the_whole_tree(void **state)
{
    (void)state;
    put_command("echo ready; " STUBBORN "sleep 77");
    uint32_t stream = start_run();
    until_output(stream, 6);
    nap_ms(100);
    put_number(WT_SIGNAL, SIGTERM);
    put_number(WT_TREE, 1);
    put_number(WT_GRACE_MS, 60000);
    send_request(WIRE_SIGNAL, stream);
    nap_ms(100);
    put_number(WT_SIGNAL, SIGKILL); /* impatient */
    put_number(WT_TREE, 1);
    send_request(WIRE_SIGNAL, stream);
    finish_run(stream);
    assert_int_equal(res.stopped, 1);
    assert_int_equal(res.left, 0);
    assert_int_equal(count_processes("sleep 77"), 0);
}

static void stopped_processes_are_ended_too(void **state)
{
    (void)state;
    put_command("sh -c 'kill -STOP $$; sleep 77' & sleep 77");
    put_number(WT_TIMEOUT_MS, 200);
    put_number(WT_GRACE_MS, 200);
    finish_run(start_run());
    assert_int_equal(res.left, 0);
    assert_int_equal(count_processes("sleep 77"), 0);
    assert_int_equal(count_processes("sh -c kill"), 0);
}

static void leftovers_of_a_forgotten_run_can_be_ended(void **state)
{
    (void)state;
    put_command("(setsid sleep 79 &); sleep 0.1");
    uint32_t stream = start_run();
    finish_run(stream);
    assert_int_equal(res.left, 1);
    run("(setsid sleep 79 &); sleep 0.1");
    char id[32];
    (void)snprintf(id, sizeof id, "run-%u", stream);
    put_text(WT_RUN_ID, id);
    put_number(WT_SIGNAL, SIGTERM);
    put_number(WT_TREE, 1);
    send_request(WIRE_SIGNAL, stream);
    uint64_t until = now_ms() + PATIENCE_MS;
    while (count_processes("sleep 79") != 1 && now_ms() < until)
        nap_ms(10);
    nap_ms(100);
    assert_int_equal(count_processes("sleep 79"), 1); /* of the other run */
}

static void another_user_is_found(void **state)
{
    (void)state;
    put_command("(setpriv --reuid 65534 --regid 65534 --clear-groups setsid sh -c "
                "'trap \"\" TERM; sleep 76; sleep 76' &); sleep 76");
    put_number(WT_TIMEOUT_MS, 300);
    put_number(WT_GRACE_MS, 100);
    finish_run(start_run());
    assert_int_equal(res.timed_out, 1);
    assert_int_equal(count_processes("sleep 76"), 0);
}

static void a_spreading_tree_is_ended(void **state)
{
    (void)state;
    /* Each generation forks the next and dies: a moving target. */
    put_command("ulimit -u 400; f() { sleep 0.01; f & exit; }; i=0; "
                "while [ $i -lt 20 ]; do f & i=$((i+1)); done; sleep 60");
    put_number(WT_TIMEOUT_MS, 500);
    put_number(WT_GRACE_MS, 100);
    uint64_t start = now_ms();
    finish_run(start_run());
    assert_true(now_ms() - start < 5000);
    assert_int_equal(res.left, 0);
    run("set -- /proc/[0-9]*; echo $#");
    assert_string_equal(res.out, "2\n");
}

int main(int argc, char **argv)
{
    (void)argc;
    agent_find(argv[0]);
#define CASE(f) cmocka_unit_test_setup_teardown(f, agent_setup, agent_teardown)
    const struct CMUnitTest tests[] = {
        CASE(leftovers_do_not_delay_and_are_counted),
        CASE(leftovers_may_go_on_writing),
        CASE(a_flooding_leftover_does_not_delay_the_end),
        CASE(orphans_leave_no_zombies),
        CASE(a_timeout_reaches_the_whole_tree),
        CASE(a_timeout_ends_early_when_all_obey),
        CASE(a_timeout_needs_no_runner),
        CASE(fifty_timeouts_at_once),
        CASE(a_stop_reaches_the_whole_tree),
        CASE(stopped_processes_are_ended_too),
        CASE(leftovers_of_a_forgotten_run_can_be_ended),
        CASE(another_user_is_found),
        CASE(a_spreading_tree_is_ended),
    };
    return cmocka_run_group_tests_name("agent: trees", tests, NULL, NULL);
}
