"""exec: a command behaves as in a plain sh, and the next call finds a healthy sandbox."""

import time

import pytest

from server import BASE, docker, parallel, wait_for


def test_streams_and_exit_code(server, box):
    r = server.ok("exec", sandbox=box, command="echo out; echo err >&2; exit 7")
    assert (r["stdout"], r["stderr"], r["exit_code"]) == ("out\n", "err\n", 7)
    assert r["timed_out"] is False
    assert r["sandbox_created"] is True
    assert 0 <= r["duration_ms"] < 30000
    assert not server.ok("exec", sandbox=box, command="true").get("sandbox_created")


# What a plain sh makes of it is found by asking the same shell in the same container.
@pytest.mark.parametrize("command", [
    "exit 7",
    "false",
    "echo 'unclosed",
    'echo "unclosed',
    "if true; then echo x",
    "echo ) x",
    "cat <<'E'\nit's $HOME \\ \"q\"\nE\n",
    "cat <<E\nsum $((1+2))\nE",
    "cat <<E\nno end",
    "set -e; false; echo never",
    "set -u; echo $nothing; echo never",
    "echo a\\\n b; printf '%s|' \"x y\" 'a\nb'",
    "exec >/tmp/gone; echo hidden",
    "exit",
    "true; (exit 3)",
    "no-such-program-here",
    "/workspace",
    "# only a comment",
    "-x",
    "echo -n; echo -e 'a\\tb'",
    "trap 'echo bye' EXIT; exit 4",
    "echo $0; echo $#",
    "f() { return 9; }; f",
    "echo ${x:?is needed}; echo never",
    ". /no/such/file",
    "cd /nowhere && pwd",
    "yes | head -n 2",
    "echo '中文 é 😀'",
])
def test_as_a_plain_shell(server, shared, command):
    server.sh(shared, "true")
    plain = docker_sh(server.container(shared), command)
    r = server.ok("exec", sandbox=shared, command=command)
    assert (r["exit_code"], r["stdout"], r["stderr"]) == plain
    assert server.sh(shared, "echo healthy") == "healthy\n"


@pytest.fixture(scope="module")
def shared(server):
    """One sandbox for the tables: what a row does must not be seen by the next one anyway."""
    server.ok("create_sandbox", sandbox="exec-shared")
    yield "exec-shared"
    server.call("destroy_sandbox", sandbox="exec-shared", delete_files=True)


def docker_sh(container, command):
    import subprocess
    p = subprocess.run(["docker", "exec", "-w", "/workspace", container, "sh", "-c", "--", command],
                       capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)
    return p.returncode, p.stdout, p.stderr


@pytest.mark.parametrize("signal,number", [("9", 9), ("TERM", 15), ("SEGV", 11)])
def test_killed_by_a_signal(server, shared, signal, number):
    r = server.ok("exec", sandbox=shared, command=f"echo before; kill -{signal} $$; echo after")
    assert r["stdout"] == "before\n"
    assert r["exit_code"] == 128 + number
    assert r["signal"] == {9: "SIGKILL", 15: "SIGTERM", 11: "SIGSEGV"}[number]
    assert r["timed_out"] is False
    assert server.sh(shared, "echo healthy") == "healthy\n"


def test_a_child_killed_by_a_signal_is_a_plain_exit_code(server, shared):
    r = server.ok("exec", sandbox=shared, command="sh -c 'kill -9 $$'; exit $?")
    assert r["exit_code"] == 137
    assert not r.get("signal")


@pytest.mark.parametrize("command", ["", " ", "\n", "\t \n"])
def test_an_empty_command_is_an_error(server, shared, command):
    e = server.fails("exec", sandbox=shared, command=command)
    assert "empty" in e["error"]
    assert server.sh(shared, "echo healthy") == "healthy\n"


def test_a_script_of_200_kb(server, shared):
    script = "n=0\n" + "n=$((n+1)) # a line that is here to make the script long\n" * 3600 + "echo $n\n"
    assert len(script) > 200000
    assert server.sh(shared, script) == "3600\n"
    assert server.sh(shared, "echo healthy") == "healthy\n"


def test_a_long_line_and_a_script_of_2_mb(server, shared):
    word = "x" * 200000
    assert server.sh(shared, f"v={word}; echo ${{#v}}") == "200000\n"
    script = ": " + "y" * 1500000 + "\n: " + "z" * 500000 + "\necho done\n"
    r, is_error = server.call("exec", sandbox=shared, command=script)
    if is_error:
        assert "write_text" in r["fix"], r
    else:
        assert (r["exit_code"], r["stdout"]) == (0, "done\n")


def test_heredoc_script_has_no_arguments(server, shared):
    assert server.sh(shared, "sh - <<'PY'\necho \"$# it''s\"\nPY") == "0 it''s\n"


@pytest.mark.parametrize("command,least", [
    ("echo hi; sleep 100 &", 1),
    ("echo hi; sleep 100 & sleep 100 &", 2),
    ("echo hi; (sleep 100 | cat) &", 2),
    ("echo hi; setsid sleep 100 &", 1),
    ("echo hi; nohup sleep 100 >/dev/null 2>&1 &", 1),
    ("echo hi; (sleep 100 </dev/null >/dev/null 2>&1 &) ; exit 0", 1),
])
def test_a_background_process_does_not_hold_the_call(server, box, command, least):
    start = time.monotonic()
    r = server.ok("exec", sandbox=box, command=command)
    assert time.monotonic() - start < 20
    assert (r["exit_code"], r["stdout"]) == (0, "hi\n")
    assert not r.get("job_id")
    left = r["left_running"]
    assert left >= 1
    assert server.sh(box, "echo two") == "two\n"
    wait_for(lambda: len(server.processes(box)) >= least, 10, "it goes on")


def test_output_of_a_background_process_after_the_end_does_no_harm(server, box):
    r = server.ok("exec", sandbox=box, command="(while :; do echo noise || exit; sleep 0.01; done) & echo hi")
    assert r["exit_code"] == 0 and r["stdout"].startswith(("hi", "noise"))
    for i in range(20):
        assert server.sh(box, f"echo {i}") == f"{i}\n"


@pytest.mark.parametrize("command,code,out", [
    ("cat", 0, ""),
    ("read x; echo got:$x $?", 0, "got: 1\n"),
    ("wc -c", 0, "0\n"),
    ("sh", 0, ""),
    ("head -c 1 | wc -c", 0, "0\n"),
])
def test_without_stdin_reading_ends_at_once(server, shared, command, code, out):
    start = time.monotonic()
    r = server.ok("exec", sandbox=shared, command=command, timeout=30)
    assert (r["exit_code"], r["stdout"], r["timed_out"]) == (code, out, False)
    assert time.monotonic() - start < 20


@pytest.fixture(scope="module")
def base_box(server):
    assert docker("images", "-q", BASE), f"there is no image {BASE}: run images/build.sh base"
    name = "base-image-box"
    server.ok("create_sandbox", sandbox=name, image=BASE)
    yield name
    server.call("destroy_sandbox", sandbox=name, delete_files=True)


@pytest.mark.parametrize("command,out", [
    ("python3", ""),
    ("python3 -c 'import sys; print(repr(sys.stdin.read()))'", "''\n"),
    ("python3 - <<'PY'\nimport sys\nprint(sys.argv, 'it''s')\nPY", "['-'] its\n"),
    ("python3 -c 'print(\"中文\")'", "中文\n"),
])
def test_python_in_the_base_image(server, base_box, command, out):
    r = server.ok("exec", sandbox=base_box, command=command, timeout=60)
    assert (r["exit_code"], r["stdout"], r["timed_out"]) == (0, out, False)


@pytest.mark.parametrize("command", [
    "git clone https://127.0.0.1:1/private.git",
    "python3 -c 'input()'",
])
def test_what_would_ask_does_not_wait(server, base_box, command):
    r = server.ok("exec", sandbox=base_box, command=command, timeout=60)
    assert r["exit_code"] != 0 and r["timed_out"] is False


def test_the_base_image_has_what_it_promises(server, base_box):
    tools = "python3 pip git curl jq unzip"
    assert server.sh(base_box, f"for t in {tools}; do command -v $t >/dev/null || echo no $t; done") == ""
    assert server.sh(base_box, "python3 -c 'import requests, pypdf, pdfplumber, pandas' && echo ok") == "ok\n"


@pytest.mark.parametrize("text", ["", "one line\n", "no end", "中文\n", "x" * 300000 + "\n"])
def test_stdin_is_given(server, shared, text):
    assert server.sh(shared, "cat > f; wc -c < f", stdin=text).strip() == str(len(text.encode()))
    assert server.sh(shared, "head -c 30000 f") == text[:30000]


def test_stdin_to_a_command_that_does_not_read_it(server, shared):
    assert server.sh(shared, "echo done", stdin="y" * 500000) == "done\n"


def test_environment(server, shared):
    r = server.sh(shared, 'echo "$A|$B|$C"', env={"A": "1 2", "B": "it's \"q\" $x\nnew", "C": ""})
    assert r == "1 2|it's \"q\" $x\nnew|\n"
    assert server.sh(shared, 'echo "$A|"') == "|\n", "it does not stay"
    assert server.sh(shared, "echo $LANG$LC_ALL").strip().upper().replace("-", "").endswith("UTF8")


def test_numbers_and_booleans_in_the_environment(server, shared):
    assert server.sh(shared, 'echo "$N $B"', env={"N": 5, "B": True}) == "5 true\n"


@pytest.mark.parametrize("name", ["", "A=B", "="])
def test_a_wrong_variable_name_is_an_error(server, shared, name):
    e = server.fails("exec", sandbox=shared, command="true", env={name: "x"})
    assert "env" in e["error"]


def test_workdir(server, shared):
    assert server.sh(shared, "pwd") == "/workspace\n"
    assert server.sh(shared, "pwd", workdir="/tmp") == "/tmp\n"
    server.sh(shared, "mkdir -p 'sub dir'")
    assert server.sh(shared, "pwd", workdir="sub dir") == "/workspace/sub dir\n"
    e = server.fails("exec", sandbox=shared, command="pwd", workdir="/no/such/dir")
    assert "/no/such/dir" in e["error"]
    assert server.sh(shared, "echo healthy") == "healthy\n"


def test_calls_do_not_share_a_shell(server, shared):
    server.sh(shared, "set -e; set -u; cd /; umask 077; X=1; export X; alias ls=false; exec >/tmp/x; echo hidden")
    r = server.ok("exec", sandbox=shared, command='false; pwd; umask; echo "[${X-}]"')
    assert (r["exit_code"], r["stdout"]) == (0, "/workspace\n0022\n[]\n")


def test_timeout_reaches_the_whole_tree(server, box):
    marker = "31.4159"
    command = f"""
        trap '' TERM INT HUP
        echo started
        (trap '' TERM; setsid sh -c 'trap "" TERM; (sleep {marker} & sleep {marker}) & sleep {marker}' &) &
        nohup sleep {marker} >/dev/null 2>&1 &
        while :; do sleep {marker}; done
    """
    start = time.monotonic()
    r = server.ok("exec", sandbox=box, command=command, timeout=1.5)
    assert time.monotonic() - start < 25
    assert r["timed_out"] is True
    assert r["stdout"] == "started\n", "what came before is kept"
    assert r["exit_code"] != 0
    wait_for(lambda: server.processes(box) == [], 10, "nothing of the tree is left")
    assert server.sh(box, "echo healthy") == "healthy\n"


def test_timeout_of_a_silent_command(server, shared):
    r = server.ok("exec", sandbox=shared, command="sleep 60", timeout=1)
    assert r["timed_out"] is True and (r["stdout"], r["stderr"]) == ("", "")


def test_many_timeouts_at_once(server, box):
    server.sh(box, "true")
    results = parallel(20, lambda i: server.ok(
        "exec", sandbox=box, command="(setsid sleep 600 &) ; sleep 60", timeout=2))
    assert [r["timed_out"] for r in results] == [True] * 20
    wait_for(lambda: server.processes(box) == [], 15, "nothing is left")
    assert server.sh(box, "echo ok") == "ok\n"


def test_600_orphans_leave_no_zombie(server, box):
    server.ok("create_sandbox", sandbox=box)

    def some(i):
        for _ in range(75):
            assert server.ok("exec", sandbox=box, command="(sleep 0.1 &)")["exit_code"] == 0

    parallel(8, some)
    count = "cat /proc/[0-9]*/status 2>/dev/null | grep -c '^State:.Z'; true"
    wait_for(lambda: server.sh(box, count) == "0\n", 10, "no zombies")
    wait_for(lambda: server.processes(box) == [], 10, "the orphans have ended")
    assert server.sh(box, "echo 601") == "601\n"


def test_out_of_memory(server, box):
    server.ok("create_sandbox", sandbox=box, memory="48m")
    container = server.container(box)
    r = server.ok("exec", sandbox=box, command="dd if=/dev/zero of=/dev/null bs=200M count=1; echo code $?",
                  timeout=60)
    assert r["oom_killed"] is True, r
    r = server.ok("exec", sandbox=box, command="exec dd if=/dev/zero of=/dev/null bs=200M count=1", timeout=60)
    assert r["oom_killed"] is True and r["exit_code"] == 137
    r = server.ok("exec", sandbox=box, command="echo fine; exit 3")
    assert (r["stdout"], r["exit_code"]) == ("fine\n", 3) and not r.get("oom_killed")
    assert server.container(box) == container, "the sandbox went on"


def test_pids_limit(make_server):
    s = make_server(SMCP_PIDS_LIMIT=40)
    s.ok("exec", sandbox="p", command="echo before > f")
    r = s.ok("run_background", sandbox="p", command="sh -c 'while :; do sleep 300 & done'; sleep 300")
    wait_for(lambda: len(s.processes("p")) > 36, 20, "the limit is reached")
    for _ in range(6):  # whatever places are still free
        s.call("run_background", sandbox="p", command="exec sleep 300")
    e = s.fails("exec", sandbox="p", command="echo x", timeout=10)
    assert "pids limit 40 reached" in e["error"]
    # file tools need no process
    assert s.ok("read_text", sandbox="p", path="f")["content"] == "before\n"
    assert [e["name"] for e in s.ok("list_files", sandbox="p")["entries"]] == ["f"]
    s.ok("stop_job", job_id=r["job_id"], signal="KILL")
    wait_for(lambda: len(s.processes("p")) < 8, 20, "stop_job ends all of it")
    assert s.sh("p", "echo works again") == "works again\n"


def test_run_id_makes_a_retry_safe(server, box):
    args = dict(sandbox=box, command="echo x >> count; wc -l < count", run_id="my-own-id")
    first = server.ok("exec", **args)
    second = server.ok("exec", **args)
    assert first["stdout"].strip() == second["stdout"].strip() == "1"
    assert second["exit_code"] == 0
    assert server.sh(box, "wc -l < count").strip() == "1"
    other = server.ok("exec", **{**args, "run_id": "another"})
    assert other["stdout"].strip() == "2"


def test_the_same_run_id_at_once_runs_once(server, box):
    server.sh(box, "true")
    results = parallel(8, lambda i: server.ok(
        "exec", sandbox=box, command="echo x >> count; sleep 0.5; wc -l < count", run_id="together"))
    assert {r["stdout"].strip() for r in results} == {"1"}


def test_words_of_docker_in_stderr_mean_nothing(server, box):
    container = None
    for _ in range(2):
        r = server.ok("exec", sandbox=box, command="echo 'Error: No such container: x' >&2; exit 1")
        assert (r["exit_code"], r["stderr"]) == (1, "Error: No such container: x\n")
        assert not r.get("recreated")
        assert container in (None, server.container(box))
        container = server.container(box)


def test_pid_1_is_the_agent_and_cannot_be_killed_from_inside(server, box):
    server.sh(box, "kill -9 1; kill -TERM 1; kill -INT 1; true")
    container = server.container(box)
    assert server.sh(box, "tr '\\0' ' ' < /proc/1/cmdline").startswith("/usr/local/sbin/sandbox-agent")
    assert server.container(box) == container
    r = server.ok("exec", sandbox=box, command="touch /usr/local/sbin/sandbox-agent; echo x > /usr/local/sbin/sandbox-agent")
    assert r["exit_code"] != 0, "the agent's file is read-only"


def test_closed_descriptors(server, shared):
    assert server.sh(shared, "ls /proc/self/fd").split() == ["0", "1", "2", "3"], "3 is the folder that ls reads"
    assert server.sh(shared, "echo x >&-; exec 1>&- 2>&-; true") == ""


def test_no_process_marker_is_shared_between_runs(server, shared):
    a = server.sh(shared, "echo $SMCP_RUN_ID").strip()
    b = server.sh(shared, "echo $SMCP_RUN_ID").strip()
    assert a and b and a != b
