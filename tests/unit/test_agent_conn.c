#include "common/base.h"

#include "tests/unit/agent_client.h"

#define FLOOD       "i=0; while [ $i -lt 100000 ]; do echo line $i; i=$((i+1)); done"
#define FLOOD_BYTES 1088890u /* 100 000 lines: the words, the numbers' digits, the newlines */

static char self[PATH_MAX];

static void hello_tells_who_is_there(void **state)
{
    (void)state;
    unsigned char boot[16];
    assert_int_equal(got_number(WT_VERSION), WIRE_VERSION);
    assert_int_equal(got_number(WT_NEXT_STREAM), 1);
    memcpy(boot, got_text(WT_BOOT_ID), sizeof boot);
    agent.stream = 41;
    run("true");
    reconnect();
    assert_int_equal(got_number(WT_NEXT_STREAM), 43);
    assert_memory_equal(got_text(WT_BOOT_ID), boot, sizeof boot);
    assert_string_equal(got_text(WT_RUN_STATE), ""); /* WIRE_DONE has been said */
}

static void a_ping_comes_back(void **state)
{
    (void)state;
    static char data[3 * WIRE_MAX_PAYLOAD];
    memset(data, 'z', sizeof data);
    send_frame(WIRE_PING, 0, 7, "abc", 3);
    next_frame();
    assert_int_equal(got.h.type, WIRE_PONG);
    assert_int_equal(got.h.stream, 7);
    assert_memory_equal(got.p, "abc", 3);
    for (int i = 0; i < 3; i++)
        send_frame(WIRE_PING, i < 2 ? WIRE_F_MORE : 0, 0, data, WIRE_MAX_PAYLOAD);
    for (int i = 0; i < 3; i++) {
        next_frame();
        assert_int_equal(got.h.length, WIRE_MAX_PAYLOAD);
        assert_int_equal(got.h.flags & WIRE_F_MORE, i < 2 ? WIRE_F_MORE : 0);
    }
}

/* The run's state as the last WIRE_HELLO_ACK told it. */
static uint64_t state_number(enum wire_tag tag)
{
    struct wire_field f;
    size_t pos = 0;
    uint64_t v = UINT64_MAX;
    const char *state = got_text(WT_RUN_STATE);
    size_t n = 0;
    for (size_t at = 0; wire_field_next(got.p, got.h.length, &at, &f) > 0;)
        if (f.tag == WT_RUN_STATE)
            n = f.n;
    while (wire_field_next((const unsigned char *)state, n, &pos, &f) > 0)
        if (f.tag == tag)
            assert_int_equal(wire_number(&f, &v), 0);
    return v;
}

static void the_window_stops_a_command_and_an_ack_lets_it_go_on(void **state)
{
    (void)state;
    put_command(FLOOD);
    uint32_t stream = start_run();
    while (res.next < WIRE_WINDOW)
        assert_false(step_run(stream, false));
    assert_int_equal(res.next, WIRE_WINDOW);
    expect_silence(200);
    send_offset(WIRE_ACK, stream, 100000);
    while (res.next < WIRE_WINDOW + 100000)
        assert_false(step_run(stream, false));
    expect_silence(100);
    send_offset(WIRE_ACK, stream, res.next);
    finish_run(stream);
    assert_int_equal(res.offset, FLOOD_BYTES);
}

static void the_end_waits_for_the_last_output(void **state)
{
    (void)state;
    /* More than the window, but no more than window and pipe: the process ends before the ack. */
    put_command("head -c 300000 /dev/zero");
    uint32_t stream = start_run();
    while (res.next < WIRE_WINDOW)
        assert_false(step_run(stream, false));
    expect_silence(200);
    send_offset(WIRE_ACK, stream, res.next);
    finish_run(stream);
    assert_int_equal(res.offset, 300000);
}

static void an_ack_of_the_future_closes(void **state)
{
    (void)state;
    put_command("echo x; sleep 60");
    uint32_t stream = start_run();
    while (res.next < 2)
        assert_false(step_run(stream, false));
    send_offset(WIRE_ACK, stream, 3);
    assert_false(try_frame());
}

static void a_new_runner_goes_on_without_a_gap(void **state)
{
    (void)state;
    put_command(FLOOD "; sleep 0.5; echo end; exit 5");
    uint32_t stream = start_run();
    uint64_t kept = 0;
    for (int i = 0; i < 6; i++) {
        for (int n = 0; n < 6; n++)
            assert_false(step_run(stream, n % 2));
        kept = res.next;
        reconnect();
        assert_int_equal(state_number(WT_STREAM), stream);
        assert_int_equal(state_number(WT_RUNNING), 1);
        assert_true(state_number(WT_OFFSET) <= kept);
        expect_silence(20); /* nothing before it is asked for */
        send_offset(WIRE_ATTACH, stream, kept);
    }
    finish_run(stream);
    assert_int_equal(res.offset, FLOOD_BYTES + 4);
    assert_int_equal(res.code, 5);
}

static void an_unacknowledged_end_is_told_again(void **state)
{
    (void)state;
    put_command("echo out; echo err >&2; exit 9");
    uint32_t stream = start_run();
    while (!step_run(stream, false))
        continue;
    for (int i = 0; i < 2; i++) {
        reconnect();
        assert_int_equal(state_number(WT_RUNNING), 0);
        assert_int_equal(state_number(WT_SIZE), 8);
        memset(&res, 0, sizeof res);
        send_offset(WIRE_ATTACH, stream, 0);
        while (!step_run(stream, false))
            continue;
        assert_int_equal(res.code, 9);
        assert_string_equal(res.out, "out\n");
        assert_string_equal(res.err, "err\n");
    }
    send_frame(WIRE_DONE, 0, stream, NULL, 0);
    send_offset(WIRE_ATTACH, stream, 0);
    next_frame();
    assert_int_equal(got_number(WT_ERRNO), ESRCH);
}

static void a_second_connection_takes_the_place(void **state)
{
    (void)state;
    int old = agent.fd;
    char c;
    agent_connect();
    hello();
    assert_int_equal(recv(old, &c, 1, 0), 0);
    close(old);
    run("echo new");
    assert_string_equal(res.out, "new\n");
}

static void a_run_without_all_its_input_is_forgotten(void **state)
{
    (void)state;
    put_command("cat");
    put_number(WT_STDIN_MODE, WIRE_STDIN_DATA);
    uint32_t stream = start_run();
    send_frame(WIRE_STDIN, 0, stream, "half", 4);
    reconnect();
    assert_string_equal(got_text(WT_RUN_STATE), "");
}

static void malformed_frames_close_and_runs_go_on(void **state)
{
    (void)state;
    static const struct {
        int line;
        const char *bytes;
        size_t n;
    } rows[] = {
        {ROW, "\1\0\1\0\x09\0\0\0\0\0\0\0", 12},                /* over the maximum */
        {ROW, "\0\0\0\0\x09\0\1\0\0\0\0\0", 12},                /* an unused bit */
        {ROW, "\0\0\0\0\0\0\0\0\0\0\0\0", 12},                  /* no type */
        {ROW, "\0\0\0\0\x28\0\0\0\0\0\0\0", 12},                /* an unknown type */
        {ROW, "\0\0\0\0\x44\0\0\0\0\0\0\0", 12},                /* one of the agent's own */
        {ROW, "\0\0\0\0\x02\0\0\0\0\0\0\0", 12},                /* a run on stream 0 */
        {ROW, "\3\0\0\0\x02\0\0\0\5\0\0\0abc", 15},             /* half a field */
        {ROW, "\6\0\0\0\x02\0\0\0\5\0\0\0\7\0\xff\0\0\0", 18},  /* longer than its payload */
        {ROW, "\7\0\0\0\x04\0\0\0\5\0\0\0\x12\0\1\0\0\0x", 19}, /* a number of one byte */
        {ROW, "\1\0\0\0\x05\0\0\0\5\0\0\0x", 13},               /* an ack of one byte */
    };
    put_command("sleep 0.5; echo alive");
    uint32_t stream = start_run();
    while (!res.started)
        assert_false(step_run(stream, false));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        row_true(rows[i].line, send(agent.fd, rows[i].bytes, rows[i].n, 0) == (ssize_t)rows[i].n);
        row_true(rows[i].line, !try_frame());
        reconnect();
    }
    send_offset(WIRE_ATTACH, stream, 0);
    finish_run(stream);
    assert_string_equal(res.out, "alive\n");
}

static void hello_must_be_first(void **state)
{
    (void)state;
    close(agent.fd);
    agent_connect();
    send_frame(WIRE_PING, 0, 0, NULL, 0);
    assert_false(try_frame());
    reconnect();
}

static void too_much_in_parts_closes(void **state)
{
    (void)state;
    static char data[WIRE_MAX_PAYLOAD];
    char c;
    /* More than WIRE_MAX_MESSAGE in all; the agent may hang up while this is being sent. */
    unsigned char head[WIRE_HEADER];
    struct wire_header h = {sizeof data, WIRE_RUN, WIRE_F_MORE, 9};
    wire_header_put(head, &h);
    for (int i = 0; i < 66; i++)
        if (send(agent.fd, head, sizeof head, MSG_NOSIGNAL) < 0 ||
            send(agent.fd, data, sizeof data, MSG_NOSIGNAL) < 0)
            break;
    assert_true(recv(agent.fd, &c, 1, 0) <= 0);
    reconnect();
}

static void a_flood_does_not_starve_others(void **state)
{
    (void)state;
    put_command("yes");
    uint32_t flood = start_run();
    uint64_t flooded = 0, worst = 0;
    for (int i = 0; i < 20; i++) {
        uint64_t start = now_ms();
        put_command("echo hi");
        uint32_t stream = start_run();
        for (bool over = false; !over;) {
            next_frame();
            over = got.h.stream == stream && got.h.type == WIRE_EXIT;
            if (got.h.type != WIRE_OUTPUT || got.h.stream != flood)
                continue;
            flooded = wire_u64_get(got.p) + got.h.length - 8;
            send_offset(WIRE_ACK, flood, flooded);
        }
        worst = MAX(worst, now_ms() - start);
        send_frame(WIRE_DONE, 0, stream, NULL, 0);
    }
    assert_true(flooded > 1000000);
    assert_true(worst < 500);
}

static void started_is_told_soon(void **state)
{
    (void)state;
    uint64_t start = now_ms();
    put_command("sleep 30");
    uint32_t stream = start_run();
    while (!res.started)
        assert_false(step_run(stream, false));
    assert_true(now_ms() - start < 1000 && res.pid > 1);
}

/* --- who may connect, and PID 1 --- */

static int strict_setup(void **state)
{
    return agent_start(state, NULL);
}

static void only_peers_outside_are_accepted(void **state)
{
    (void)state;
    char command[PATH_MAX + 100];
    struct stat st;
    run("echo served"); /* the test itself is outside */
    assert_string_equal(res.out, "served\n");
    (void)snprintf(command, sizeof command, "%s --probe %s/" WIRE_SOCKET, self, tmp_dir);
    run(command);
    assert_string_equal(res.out, "refused\n");
    run("echo served");
    assert_string_equal(res.out, "served\n");
    assert_int_equal(stat(tmp_path(WIRE_SOCKET), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* What runs inside: connect, and see whether the agent answers or hangs up. */
static int probe(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    char c;
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    (void)snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
    if (connect(fd, (const struct sockaddr *)&a, sizeof a))
        return 1;
    puts(recv(fd, &c, 1, 0) == 0 ? "refused" : "answered");
    return 0;
}

static void the_agent_cannot_be_looked_into_or_killed(void **state)
{
    (void)state;
    run("kill -TERM 1; kill -KILL 1; kill -HUP 1; sleep 0.1; echo alive");
    assert_string_equal(res.out, "alive\n");
    run("echo still");
    assert_string_equal(res.out, "still\n");
}

static void stopping_is_quick(void **state)
{
    (void)state;
    put_command("trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep 60' & sleep 60; sleep 60");
    uint32_t stream = start_run();
    while (!res.started)
        assert_false(step_run(stream, false));
    uint64_t start = now_ms();
    int status;
    kill(agent.pid, SIGTERM);
    assert_int_equal(waitpid(agent.keeper, &status, 0), agent.keeper);
    agent.pid = 0;
    assert_true(now_ms() - start < 1000);
    assert_int_equal(status, 0);
}

/* Is the name the agent's socket (again)? Waits up to `ms` for it. */
static bool socket_is_there(unsigned ms)
{
    struct stat st;
    char path[200];
    (void)snprintf(path, sizeof path, "%s/" WIRE_SOCKET, tmp_dir);
    for (uint64_t end = now_ms() + ms;; nap_ms(5)) {
        if (lstat(path, &st) == 0 && S_ISSOCK(st.st_mode))
            return true;
        if (now_ms() >= end)
            return false;
    }
}

static void a_removed_socket_comes_back(void **state)
{
    (void)state;
    char command[300];
    (void)snprintf(command, sizeof command, "rm -rf %s/* %s/.??*", tmp_dir, tmp_dir);
    run(command);
    reconnect();
    (void)snprintf(command, sizeof command, "touch %s/x; mv %s/x %s/" WIRE_SOCKET, tmp_dir, tmp_dir,
                   tmp_dir);
    run(command);
    assert_true(socket_is_there(3000));
    reconnect();
    run("echo here");
    assert_string_equal(res.out, "here\n");
}

/* Two that make the same name again and again must not keep each other busy. */
static void a_contested_socket_is_mended_seldom(void **state)
{
    (void)state;
    char from[200], to[200];
    unsigned mended = 0;
    (void)snprintf(from, sizeof from, "%s/other", tmp_dir);
    (void)snprintf(to, sizeof to, "%s/" WIRE_SOCKET, tmp_dir);
    for (int i = 0; i < 50; i++) {
        int fd = open(from, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        (void)close(fd);
        assert_int_equal(rename(from, to), 0);
        mended += socket_is_there(10);
    }
    assert_in_range(mended, 1, 3); /* half a second of it */
    assert_true(socket_is_there(3000));
}

static void an_idle_agent_is_small(void **state)
{
    (void)state;
    char path[64], line[200];
    long kib = -1;
    run("head -c 20000000 /dev/zero");
    for (int i = 0; i < 50; i++)
        run("echo hi");
    nap_ms(500);
    (void)snprintf(path, sizeof path, "/proc/%d/status", (int)agent.pid);
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (!strncmp(line, "VmRSS:", 6))
            kib = strtol(line + 6, NULL, 10);
    assert_true(kib > 0 && kib < 600);
}

int main(int argc, char **argv)
{
    if (argc == 3 && streq(argv[1], "--probe"))
        return probe(argv[2]);
    agent_find(argv[0]);
    if (!realpath("/proc/self/exe", self))
        return 1;
#define CASE(f) cmocka_unit_test_setup_teardown(f, agent_setup, agent_teardown)
    const struct CMUnitTest tests[] = {
        CASE(hello_tells_who_is_there),
        CASE(a_ping_comes_back),
        CASE(the_window_stops_a_command_and_an_ack_lets_it_go_on),
        CASE(the_end_waits_for_the_last_output),
        CASE(an_ack_of_the_future_closes),
        CASE(a_new_runner_goes_on_without_a_gap),
        CASE(an_unacknowledged_end_is_told_again),
        CASE(a_second_connection_takes_the_place),
        CASE(a_run_without_all_its_input_is_forgotten),
        CASE(malformed_frames_close_and_runs_go_on),
        CASE(hello_must_be_first),
        CASE(too_much_in_parts_closes),
        CASE(a_flood_does_not_starve_others),
        CASE(started_is_told_soon),
        CASE(the_agent_cannot_be_looked_into_or_killed),
        CASE(stopping_is_quick),
        CASE(a_removed_socket_comes_back),
        CASE(a_contested_socket_is_mended_seldom),
        CASE(an_idle_agent_is_small),
        cmocka_unit_test_setup_teardown(only_peers_outside_are_accepted, strict_setup,
                                        agent_teardown),
    };
    return cmocka_run_group_tests_name("agent: connection", tests, NULL, NULL);
}
