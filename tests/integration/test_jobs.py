"""Jobs: run_background, get_job, stop_job, and exec that turns into one."""

import re
import time

import pytest

from server import docker, parallel, wait_for

NUMBERS = "i=0; while [ $i -lt {n} ]; do i=$((i+1)); echo $i; {pause}; done"


def numbered(n, pause=":"):
    return NUMBERS.format(n=n, pause=pause)


def lines(n):
    return "".join(f"{i}\n" for i in range(1, n + 1))


@pytest.fixture(scope="module")
def shared(server):
    server.ok("create_sandbox", sandbox="jobs-shared")
    yield "jobs-shared"
    server.call("destroy_sandbox", sandbox="jobs-shared", delete_files=True)


def test_a_job_from_start_to_end(server, box):
    r = server.ok("run_background", sandbox=box, command="echo out; echo err >&2; exit 3", name="mine")
    assert re.fullmatch(r"[0-9a-z]{26}", r["job_id"])
    assert r["sandbox"] == box and r["sandbox_created"] is True
    end = server.job_end(r["job_id"])
    assert (end["status"], end["exit_code"]) == ("finished", 3)
    assert sorted(end["log_tail"].splitlines()) == ["err", "out"]
    assert end["log_bytes"] == end["next_offset"] == 8
    assert end["command"] == "echo out; echo err >&2; exit 3"
    assert end["sandbox"] == box and end["name"] == "mine"
    assert 0 <= end["elapsed_seconds"] < 60
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", end["polled_at"])


def test_run_background_does_not_wait(server, shared):
    server.sh(shared, "true")
    start = time.monotonic()
    r = server.ok("run_background", sandbox=shared, command="sleep 300")
    assert time.monotonic() - start < 10
    assert r["status"] == "running"
    assert server.ok("get_job", job_id=r["job_id"], wait=0)["status"] == "running"
    server.ok("stop_job", job_id=r["job_id"])


def test_get_job_answers_when_the_job_ends(server, shared):
    r = server.ok("run_background", sandbox=shared, command="sleep 1; echo done")
    start = time.monotonic()
    end = server.ok("get_job", job_id=r["job_id"], wait=120)
    assert time.monotonic() - start < 60
    assert (end["status"], end["exit_code"], end["log_tail"]) == ("finished", 0, "done\n")


def test_get_job_returns_at_the_end_of_its_wait(server, shared):
    r = server.ok("run_background", sandbox=shared, command="echo a; sleep 300")
    start = time.monotonic()
    answer = server.ok("get_job", job_id=r["job_id"], wait=1)
    assert 0.9 < time.monotonic() - start < 20
    assert answer["status"] == "running" and answer["log_tail"] == "a\n"
    assert answer.get("exit_code") is None
    server.ok("stop_job", job_id=r["job_id"])


def test_a_slow_exec_becomes_a_job(server, shared):
    r = server.ok("exec", sandbox=shared, command=numbered(30, "sleep 0.1"), wait=1)
    assert r["status"] == "running" and r["job_id"]
    assert r["stdout"] and lines(30).startswith(r["stdout"])
    assert r.get("exit_code") is None
    end = server.job_end(r["job_id"])
    assert (end["status"], end["exit_code"], end["log_tail"]) == ("finished", 0, lines(30))
    assert server.job_log(r["job_id"]) == lines(30), "also what came before it was a job"


def test_turning_into_a_job_breaks_no_pipe(server, shared):
    r = server.ok("exec", sandbox=shared, wait=0.2,
                  command="trap '' PIPE; sleep 1; echo one || exit 9; echo two >&2 || exit 9; sleep 0.5; echo three")
    end = server.job_end(r["job_id"])
    assert end["exit_code"] == 0 and end["log_tail"] == "one\ntwo\nthree\n"


def test_an_exec_that_ends_in_time_is_no_job(server, shared):
    r = server.ok("exec", sandbox=shared, command="echo x", wait=20)
    assert r["status"] == "finished" and "job_id" not in r


def test_exec_with_wait_0_is_a_job_at_once(server, shared):
    r = server.ok("exec", sandbox=shared, command="sleep 0.5; echo x", wait=0)
    assert r["status"] == "running"
    assert server.job_end(r["job_id"])["log_tail"] == "x\n"


def test_the_timeout_of_an_exec_goes_on_as_a_job(server, shared):
    r = server.ok("exec", sandbox=shared, command="echo a; sleep 300", wait=0.3, timeout=2)
    end = server.job_end(r["job_id"])
    assert end["status"] == "timeout" and end["log_tail"] == "a\n"


def test_reading_by_offset_has_no_gap(server, shared):
    r = server.ok("run_background", sandbox=shared, command=numbered(4000))
    end = server.job_end(r["job_id"])
    assert end["log_bytes"] == len(lines(4000))
    assert server.job_log(r["job_id"]) == lines(4000)
    offset = lines(4000).index("2000\n")
    part = server.ok("get_job", job_id=r["job_id"], offset=offset, wait=0)
    assert part["log_tail"].startswith("2000\n2001\n")
    past = server.ok("get_job", job_id=r["job_id"], offset=10**9, wait=0)
    assert past["log_tail"] == "" and past["next_offset"] == len(lines(4000))


def test_following_a_job_while_it_writes(server, shared):
    r = server.ok("run_background", sandbox=shared, command=numbered(100, "sleep 0.02"))
    text, offset, status = "", 0, "running"
    while True:
        answer = server.ok("get_job", job_id=r["job_id"], offset=offset, wait=0.1)
        text += answer["log_tail"]
        offset = answer["next_offset"]
        if status != "running" and not answer["log_tail"]:
            break
        status = answer["status"]
    assert status == "finished" and text == lines(100)


@pytest.mark.parametrize("tail,expected", [(3, "98\n99\n100\n"), (1, "100\n"), (0, ""), (1000, lines(100))])
def test_tail_lines(server, shared, tail, expected):
    r = server.ok("run_background", sandbox=shared, command=numbered(100))
    server.job_end(r["job_id"])
    assert server.ok("get_job", job_id=r["job_id"], tail_lines=tail)["log_tail"] == expected


def test_characters_are_whole_at_every_offset(server, shared):
    text = "é中😀\n" * 50
    r = server.ok("run_background", sandbox=shared, command="printf 'é中😀\\n%.0s' $(seq 50)")
    server.job_end(r["job_id"])
    for offset in range(0, 25):
        answer = server.ok("get_job", job_id=r["job_id"], offset=offset, wait=0)
        assert "�" not in answer["log_tail"]
        assert text.endswith(answer["log_tail"])


def test_a_finished_job_stays_readable(server, box):
    r = server.ok("run_background", sandbox=box, command="echo kept; exit 5")
    first = server.job_end(r["job_id"])
    server.sh(box, "echo between")
    server.ok("destroy_sandbox", sandbox=box, delete_files=True)
    again = server.ok("get_job", job_id=r["job_id"], wait=0)
    for key in ("status", "exit_code", "log_tail", "log_bytes", "command", "elapsed_seconds"):
        assert again[key] == first[key], key
    assert server.ok("get_job", job_id=r["job_id"].upper(), wait=0)["exit_code"] == 5


def test_a_job_that_leaves_a_process(server, box):
    r = server.ok("run_background", sandbox=box, command="sleep 200 & echo started")
    end = server.job_end(r["job_id"])
    assert (end["status"], end["exit_code"], end["log_tail"]) == ("finished", 0, "started\n")
    assert end["left_running"] == 1


@pytest.mark.parametrize("signal", ["TERM", "KILL"])
def test_stop_job_ends_the_whole_tree(server, box, signal):
    marker = {"TERM": "27.181", "KILL": "27.182"}[signal]
    r = server.ok("run_background", sandbox=box, command=f"""
        trap '' TERM
        setsid sh -c 'trap "" TERM; sleep {marker} & sleep {marker}' &
        echo ready
        while :; do sleep {marker}; done""")
    wait_for(lambda: server.ok("get_job", job_id=r["job_id"], wait=0)["log_tail"] == "ready\n", 20, "it runs")
    answer = server.ok("stop_job", job_id=r["job_id"], signal=signal)
    assert answer["job_id"] == r["job_id"]
    end = server.job_end(r["job_id"])
    assert end["status"] == "stopped" and end["signal"] == "SIGKILL"
    wait_for(lambda: server.processes(box) == [], 15, "the tree is gone")
    assert server.sh(box, "echo healthy") == "healthy\n"


def test_stop_job_after_the_end_ends_what_is_left(server, box):
    r = server.ok("run_background", sandbox=box, command="setsid sleep 28.181 & sleep 28.181 & exit 0")
    assert server.job_end(r["job_id"])["left_running"] == 2
    assert len(server.processes(box)) == 2
    answer = server.ok("stop_job", job_id=r["job_id"])
    assert answer["stopped"] is False and answer["status"] == "finished" and "left" in answer["note"]
    wait_for(lambda: server.processes(box) == [], 15, "nothing is left")


def test_a_run_id_is_for_one_command(server, box):
    first = server.ok("exec", sandbox=box, command="echo one; date +%N", run_id="once")
    assert server.ok("exec", sandbox=box, command="echo one; date +%N", run_id="once")["stdout"] == first["stdout"]
    e = server.fails("exec", sandbox=box, command="echo two", run_id="once")
    assert e["code"] == "run_id_used" and "once" in e["error"]
    server.ok("destroy_sandbox", sandbox=box)
    assert server.sh(box, "echo two", run_id="once") == "two\n"  # a new sandbox of that name


def test_a_run_id_is_free_again_when_nothing_ran(server, box):
    name = box + "-x"
    server.ok("create_sandbox", sandbox=name)
    for id in server.containers(name):
        docker("rm", "-f", id)
    workspace = server.workspace(name)
    workspace.rename(workspace.with_name("away"))
    workspace.write_text("in the way")
    e = server.fails("exec", sandbox=name, command="echo ran", run_id="again")
    assert e["code"] != "run_id_used"
    workspace.unlink()
    workspace.with_name("away").rename(workspace)
    assert server.sh(name, "echo ran", run_id="again") == "ran\n"
    server.ok("destroy_sandbox", sandbox=name, delete_files=True)


def test_stop_job_lets_a_job_say_goodbye(server, box):
    r = server.ok("run_background", sandbox=box,
                  command="trap 'echo bye; exit 0' TERM; echo ready; while :; do :; done")
    wait_for(lambda: server.ok("get_job", job_id=r["job_id"], wait=0)["log_tail"], 20, "it runs")
    server.ok("stop_job", job_id=r["job_id"])
    end = server.job_end(r["job_id"])
    assert end["status"] == "stopped" and end["log_tail"] == "ready\nbye\n"


def test_other_signals_are_only_sent(server, box):
    r = server.ok("run_background", sandbox=box,
                  command="trap 'echo usr1' USR1; echo ready; while [ ! -e stop ]; do :; done; echo end")
    log = lambda: server.ok("get_job", job_id=r["job_id"], wait=0)["log_tail"]
    wait_for(lambda: log() == "ready\n", 20, "it runs")
    server.ok("stop_job", job_id=r["job_id"], signal="USR1")
    wait_for(lambda: log() == "ready\nusr1\n", 20, "the trap ran")
    server.sh(box, "touch stop")
    end = server.job_end(r["job_id"])
    assert (end["status"], end["exit_code"]) == ("finished", 0)


def test_stopping_what_has_ended(server, shared):
    r = server.ok("run_background", sandbox=shared, command="exit 6")
    server.job_end(r["job_id"])
    answer = server.ok("stop_job", job_id=r["job_id"])
    assert answer["stopped"] is False and answer["status"] == "finished"
    assert server.ok("get_job", job_id=r["job_id"])["exit_code"] == 6


def test_a_job_has_a_timeout(server, box):
    r = server.ok("run_background", sandbox=box, command="trap '' TERM; echo a; while :; do sleep 1; done", timeout=1)
    end = server.job_end(r["job_id"])
    assert end["status"] == "timeout" and end["log_tail"] == "a\n"
    assert server.processes(box) == []


@pytest.mark.parametrize("job_id,code", [
    ("", "invalid_argument"), ("x", "invalid_argument"), ("../../etc/passwd", "invalid_argument"),
    ("0" * 300, "invalid_argument"), ("中" * 26, "invalid_argument"), ("z" * 26, "not_found"),
    ("0" * 26, "expired"),  # an id of 1970
])
def test_unknown_jobs(server, job_id, code):
    for tool in ("get_job", "stop_job"):
        e = server.fails(tool, job_id=job_id)
        assert "job" in e["error"] and e["code"] == code


def test_stdin_and_environment_of_a_job(server, shared):
    r = server.ok("run_background", sandbox=shared, command='cat; echo "$V"; pwd', stdin="in\n", env={"V": "v"},
                  workdir="/tmp")
    assert server.job_end(r["job_id"])["log_tail"] == "in\nv\n/tmp\n"


def test_run_id_of_a_job(server, box):
    args = dict(sandbox=box, command="echo x >> count; sleep 1", run_id="job-retry")
    ids = {r["job_id"] for r in parallel(6, lambda i: server.ok("run_background", **args))}
    assert len(ids) == 1
    server.job_end(ids.pop())
    assert server.sh(box, "wc -l < count").strip() == "1"


def test_a_run_id_means_one_run_for_both_tools(server, shared):
    first = server.ok("exec", sandbox=shared, command="echo one", run_id="both-ways")
    job = server.ok("run_background", sandbox=shared, command="echo one", run_id="both-ways")
    assert job["status"] == "finished" and "stdout" not in job
    again = server.ok("get_job", job_id=job["job_id"])
    assert (again["status"], again["exit_code"]) == ("finished", 0)
    assert server.ok("exec", sandbox=shared, command="echo one", run_id="both-ways")["stdout"] == first["stdout"]


def test_many_jobs_at_once(server, box):
    server.sh(box, "true")
    ids = parallel(30, lambda i: server.ok("run_background", sandbox=box, command=f"echo {i}; exit {i}")["job_id"])
    assert len(set(ids)) == 30
    for i, job in enumerate(ids):
        end = server.job_end(job)
        assert (end["log_tail"], end["exit_code"]) == (f"{i}\n", i)


def test_a_container_restart_makes_jobs_lost(server, box):
    r = server.ok("run_background", sandbox=box, command="echo before; sleep 300")
    wait_for(lambda: server.ok("get_job", job_id=r["job_id"], wait=0)["log_tail"], 20, "it runs")
    docker("restart", "-t", "0", server.container(box))
    end = server.job_end(r["job_id"], 30)
    assert end["status"] == "lost" and end["reason"]
    assert end["log_tail"] == "before\n"
    assert server.sh(box, "echo again") == "again\n"


def test_a_job_that_waits_for_an_exec_of_the_same_sandbox(server, box):
    r = server.ok("run_background", sandbox=box, command="while [ ! -e go ]; do sleep 0.02; done; echo went")
    server.sh(box, "touch go")
    assert server.job_end(r["job_id"])["log_tail"] == "went\n"
