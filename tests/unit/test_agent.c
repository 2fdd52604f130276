#include "common/base.h"

#include "tests/unit/agent_client.h"

static void exit_codes_and_signals(void **state)
{
    (void)state;
    static const struct {
        int line;
        const char *command;
        uint64_t code, sig;
    } rows[] = {
        {ROW, "true", 0, 0},
        {ROW, "exit 3", 3, 0},
        {ROW, "exit 255", 255, 0},
        {ROW, "kill -9 $$", 0, 9},
        {ROW, "kill -TERM $$", 0, 15},
        {ROW, "", 0, 0},
        {ROW, "# a comment", 0, 0},
        {ROW, "-no-option", 127, 0},
        {ROW, "nothing-like-it", 127, 0},
        {ROW, "set -e; false", 1, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        run(rows[i].command);
        row_true(rows[i].line, !res.failed && res.code == rows[i].code && res.sig == rows[i].sig);
        row_true(rows[i].line, res.started && res.left == 0);
    }
}

static void stdout_and_stderr_are_told_apart(void **state)
{
    (void)state;
    run("echo a; echo b >&2; echo c; echo d >&2; test -t 1 || echo no tty");
    assert_string_equal(res.out, "a\nc\nno tty\n");
    assert_string_equal(res.err, "b\nd\n");
    assert_int_equal(res.offset, 15);
}

static void many_changes_between_the_streams(void **state)
{
    (void)state;
    run("i=0; while [ $i -lt 6000 ]; do echo o; echo e >&2; i=$((i+1)); done");
    assert_int_equal(res.out_len, 12000);
    assert_int_equal(res.offset, 24000);
}

static void a_long_command_runs_as_it_is(void **state)
{
    (void)state;
    static char command[210000];
    size_t n = (size_t)snprintf(command, sizeof command, "cat <<'END' | wc -c\n");
    memset(command + n, 'x', 200000);
    n += 200000;
    (void)snprintf(command + n, sizeof command - n, "\nEND\nls /proc/self/fd | wc -l; cat");
    run(command);
    assert_string_equal(res.out, "200001\n4\n"); /* 0, 1, 2 and the one ls reads with */
}

static void no_descriptor_leaks_into_a_command(void **state)
{
    (void)state;
    run("for f in /proc/self/fd/*; do readlink $f; done | grep -v pipe | grep -c -v /proc");
    assert_string_equal(res.out, "1\n"); /* /dev/null */
    run("grep -E 'Sig(Blk|Ign)' /proc/self/status | tr -d '\\t\\n'");
    assert_string_equal(res.out, "SigBlk:0000000000000000SigIgn:0000000000000000");
}

static void arguments_without_a_shell(void **state)
{
    (void)state;
    put_text(WT_ARG, "printf");
    put_text(WT_ARG, "%s|");
    put_text(WT_ARG, "a b");
    put_text(WT_ARG, "$HOME");
    put_text(WT_ARG, "");
    finish_run(start_run());
    assert_string_equal(res.out, "a b|$HOME||");

    put_text(WT_ARG, "no-such-program");
    finish_run(start_run());
    assert_true(res.failed && res.error == ENOENT);
    assert_non_null(strstr(res.text, "no-such-program"));
}

static void a_script_without_an_interpreter_line(void **state)
{
    (void)state;
    tmp_write(tmp_path("script"), "echo \"$0:$1\"", 0755);
    put_text(WT_ARG, tmp_path("script"));
    put_text(WT_ARG, "x");
    finish_run(start_run());
    assert_non_null(strstr(res.out, "/script:x\n"));
}

static void the_directory_of_a_command(void **state)
{
    (void)state;
    put_command("pwd");
    put_text(WT_CWD, "/usr/bin");
    finish_run(start_run());
    assert_string_equal(res.out, "/usr/bin\n");

    put_command("pwd");
    put_text(WT_CWD, "/no/such/place");
    finish_run(start_run());
    assert_true(res.failed && res.error == ENOENT);
    assert_non_null(strstr(res.text, "/no/such/place"));
}

static void the_environment_of_a_command(void **state)
{
    (void)state;
    put_command("echo $A,$PAGER,$SMCP_RUN_ID,$GIT_TERMINAL_PROMPT,$HOME");
    put_text(WT_ENV, "A=1");
    put_text(WT_ENV, "A=2");
    put_text(WT_ENV, "PAGER=more");
    put_text(WT_ENV, "SMCP_RUN_ID=forged");
    put_text(WT_ENV, "HOME=/h=x");
    uint32_t stream = start_run();
    finish_run(stream);
    char want[64];
    (void)snprintf(want, sizeof want, "2,more,run-%u,0,/h=x\n", stream);
    assert_string_equal(res.out, want);

    put_command("true");
    put_text(WT_ENV, "no equals sign");
    finish_run(start_run());
    assert_true(res.failed && res.error == EINVAL);
}

static void no_stdin_ends_at_once(void **state)
{
    (void)state;
    run("cat; read x || echo end");
    assert_string_equal(res.out, "end\n");
}

static void collected_stdin_is_a_file(void **state)
{
    (void)state;
    static char data[300000];
    memset(data, 'd', sizeof data);
    put_command("test -f /dev/stdin && echo file; wc -c");
    put_number(WT_STDIN_MODE, WIRE_STDIN_DATA);
    uint32_t stream = start_run();
    for (size_t at = 0; at < sizeof data; at += 50000)
        send_frame(WIRE_STDIN, 0, stream, data + at, 50000);
    expect_silence(50);
    send_frame(WIRE_STDIN, WIRE_F_EOF, stream, NULL, 0);
    finish_run(stream);
    assert_string_equal(res.out, "file\n300000\n");
}

static void piped_stdin_has_credit(void **state)
{
    (void)state;
    static char data[WIRE_STDIN_WINDOW];
    uint64_t sent = 0, taken = 0, total = 2000000;
    bool over = false;
    memset(data, 'p', sizeof data);
    put_command("sleep 0.1; wc -c");
    put_number(WT_STDIN_MODE, WIRE_STDIN_PIPE);
    uint32_t stream = start_run();
    while (!over) {
        while (sent < total && sent - taken < WIRE_STDIN_WINDOW) {
            size_t n = MIN(total - sent, WIRE_STDIN_WINDOW - (sent - taken));
            sent += n;
            send_frame(WIRE_STDIN, sent == total ? WIRE_F_EOF : 0, stream, data, n);
        }
        over = step_run(stream, true);
        if (got.h.type == WIRE_STDIN_ACK)
            taken = wire_u64_get(got.p);
    }
    assert_string_equal(res.out, "2000000\n");
    assert_int_equal(taken, total);
}

static void stdin_nobody_reads_is_acknowledged(void **state)
{
    (void)state;
    put_command("exec 0<&-; echo closed; sleep 0.3; echo done");
    put_number(WT_STDIN_MODE, WIRE_STDIN_PIPE);
    uint32_t stream = start_run();
    until_output(stream, 7);
    send_frame(WIRE_STDIN, 0, stream, "lost", 4);
    bool acked = false;
    while (!step_run(stream, true))
        acked |= got.h.type == WIRE_STDIN_ACK && wire_u64_get(got.p) == 4;
    assert_true(acked);
    assert_string_equal(res.out, "closed\ndone\n");
}

static void more_stdin_than_credit_closes(void **state)
{
    (void)state;
    static char data[WIRE_MAX_PAYLOAD];
    put_command("sleep 60");
    put_number(WT_STDIN_MODE, WIRE_STDIN_PIPE);
    uint32_t stream = start_run();
    for (int i = 0; i < 3; i++)
        send_frame(WIRE_STDIN, 0, stream, data, sizeof data);
    while (try_frame())
        assert_int_not_equal(got.h.type, WIRE_EXIT);
}

static void a_terminal(void **state)
{
    (void)state;
    put_command("test -t 0 && test -t 1 && stty size && read x && echo \"got $x\"; cat; stty size");
    put_number(WT_PTY, 1);
    put_number(WT_ROWS, 50);
    put_number(WT_COLS, 132);
    uint32_t stream = start_run();
    until_output(stream, 8);
    assert_string_equal(res.out, "50 132\r\n");
    send_frame(WIRE_STDIN, 0, stream, "word\n", 5);
    put_number(WT_ROWS, 10);
    put_number(WT_COLS, 20);
    send_request(WIRE_RESIZE, stream);
    send_frame(WIRE_STDIN, WIRE_F_EOF, stream, NULL, 0);
    finish_run(stream);
    assert_non_null(strstr(res.out, "got word\r\n"));
    assert_non_null(strstr(res.out, "10 20\r\n"));
}

static void the_same_run_twice(void **state)
{
    (void)state;
    put_command("sleep 0.2; echo once");
    uint32_t stream = start_run();
    put_command("echo twice");
    put_text(WT_RUN_ID, "run-1");
    send_request(WIRE_RUN, ++agent.stream);
    put_command("echo twice");
    put_text(WT_RUN_ID, "another");
    send_request(WIRE_RUN, stream);
    int refused = 0;
    while (refused < 2) {
        next_frame();
        if (got.h.type != WIRE_FAILED)
            continue;
        assert_int_equal(got_number(WT_ERRNO), EEXIST);
        refused++;
    }
    finish_run(stream);
    assert_string_equal(res.out, "once\n");
}

static void what_is_not_there_yet(void **state)
{
    (void)state;
    put_command("true");
    put_text(WT_SESSION, "main");
    finish_run(start_run());
    assert_int_equal(res.error, ENOSYS);
    send_request(WIRE_DIAL, ++agent.stream);
    next_frame();
    assert_int_equal(got.h.type, WIRE_FAILED);
    assert_int_equal(got_number(WT_ERRNO), ENOSYS);
}

static void signals_to_a_run(void **state)
{
    (void)state;
    put_command("trap 'echo usr1; exit 4' USR1; echo ready; while :; do sleep 0.05; done");
    uint32_t stream = start_run();
    until_output(stream, 6);
    put_number(WT_SIGNAL, SIGUSR1);
    send_request(WIRE_SIGNAL, stream);
    finish_run(stream);
    /* The sleep dies of the signal too, the shell by its trap. */
    assert_int_equal(res.code, 4);
    assert_int_equal(res.stopped, 0);

    put_number(WT_SIGNAL, SIGTERM);
    send_request(WIRE_SIGNAL, 4242);
    next_frame();
    assert_int_equal(got_number(WT_ERRNO), ESRCH);
}

int main(int argc, char **argv)
{
    (void)argc;
    agent_find(argv[0]);
#define CASE(f) cmocka_unit_test_setup_teardown(f, agent_setup, agent_teardown)
    const struct CMUnitTest tests[] = {
        CASE(exit_codes_and_signals),
        CASE(stdout_and_stderr_are_told_apart),
        CASE(many_changes_between_the_streams),
        CASE(a_long_command_runs_as_it_is),
        CASE(no_descriptor_leaks_into_a_command),
        CASE(arguments_without_a_shell),
        CASE(a_script_without_an_interpreter_line),
        CASE(the_directory_of_a_command),
        CASE(the_environment_of_a_command),
        CASE(no_stdin_ends_at_once),
        CASE(collected_stdin_is_a_file),
        CASE(piped_stdin_has_credit),
        CASE(stdin_nobody_reads_is_acknowledged),
        CASE(more_stdin_than_credit_closes),
        CASE(a_terminal),
        CASE(the_same_run_twice),
        CASE(what_is_not_there_yet),
        CASE(signals_to_a_run),
    };
    return cmocka_run_group_tests_name("agent", tests, NULL, NULL);
}
