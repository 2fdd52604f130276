"""Parts that die or are missing: nothing is lost, nothing runs twice, nothing hangs."""

import json
import os
import signal
import sqlite3
import subprocess
import threading
import time

import pytest

from server import Server, parallel, wait_for

COUNT = "i=0; while [ $i -lt {n} ]; do i=$((i+1)); echo $i; sleep {pause}; done"


def lines(n):
    return "".join(f"{i}\n" for i in range(1, n + 1))


@pytest.fixture
def own(make_server):
    return make_server()


def test_kill_9_of_the_runner_during_jobs(own):
    jobs = [own.ok("run_background", sandbox=f"b{i}", command=COUNT.format(n=150, pause=0.02))["job_id"] for i in range(3)]
    jobs.append(own.ok("run_background", sandbox="b0", command="seq 300000; exit 7")["job_id"])
    for _ in range(4):
        own.restart_runner(kill=True)
    for job in jobs[:3]:
        end = own.job_end(job)
        assert (end["status"], end["exit_code"]) == ("finished", 0)
        assert own.job_log(job) == lines(150), "no gap and nothing twice"
    end = own.job_end(jobs[3])
    assert end["exit_code"] == 7
    assert own.job_log(jobs[3]) == lines(300000)


def test_a_flooding_job_over_many_kills(own):
    job = own.ok("run_background", sandbox="b", command="seq 3000000; echo LAST")["job_id"]
    for _ in range(5):
        own.restart_runner(kill=True)
    end = own.job_end(job, 120)
    full = lines(3000000) + "LAST\n"
    assert (end["status"], end["log_bytes"]) == ("finished", len(full))
    for offset in (0, 1_000_000, 7_777_777, len(full) - 40000):
        part = own.ok("get_job", job_id=job, offset=offset, wait=0)
        assert part["log_tail"] and full[offset:part["next_offset"]] == part["log_tail"]


def test_a_job_that_ends_while_the_runner_is_down(own):
    job = own.ok("run_background", sandbox="b", command="echo early; sleep 1; echo late; exit 5")["job_id"]
    wait_for(lambda: own.ok("get_job", job_id=job, wait=0)["log_tail"], 20, "it runs")
    own.end("runner", signal.SIGKILL)
    e = own.ok("get_job", job_id=job, wait=1)
    assert e["log_tail"].startswith("early\n"), "what is stored can be read without the runner"
    time.sleep(1.2)  # the job itself takes this long; nothing that could be polled changes meanwhile
    own.start_runner()
    end = own.job_end(job)
    assert (end["status"], end["exit_code"], end["log_tail"]) == ("finished", 5, "early\nlate\n")


def test_stop_and_timeout_still_hold_after_a_restart(own):
    stopped = own.ok("run_background", sandbox="b", command="echo on; sleep 600")["job_id"]
    timed = own.ok("run_background", sandbox="b", command="sleep 600", timeout=4)["job_id"]
    wait_for(lambda: own.ok("get_job", job_id=stopped, wait=0)["log_tail"], 20, "it runs")
    own.restart_runner(kill=True)
    own.ok("stop_job", job_id=stopped)
    assert own.job_end(stopped)["status"] == "stopped"
    assert own.job_end(timed)["status"] == "timeout"


def test_an_exec_in_flight_when_the_runner_is_killed(own):
    own.sh("b", "true")
    result = {}

    def call():
        result["r"] = own.call("exec", sandbox="b", command="echo x >> count; sleep 2; echo done", wait=60)

    thread = threading.Thread(target=call)
    thread.start()
    wait_for(lambda: (own.workspace("b") / "count").exists(), 20, "it runs")
    own.restart_runner(kill=True)
    thread.join(60)
    assert not thread.is_alive(), "the caller is not left hanging"
    answer, is_error = result["r"]
    assert not is_error, answer
    assert answer["stdout"] == "done\n" and answer["exit_code"] == 0
    assert own.sh("b", "wc -l < count").strip() == "1", "it ran once"


def test_requests_during_a_restart_run_once(own):
    own.sh("b", "true")
    results = []

    def call(i):
        while True:
            answer, is_error = own.call("exec", sandbox="b", command=f"echo x >> c{i}; echo {i}", run_id=f"id-{i}", wait=60)
            if not is_error:
                return answer
            assert answer["code"] == "runner_down", answer
            time.sleep(0.05)  # the tool says that the runner is down: try again

    threads = [threading.Thread(target=lambda i=i: results.append((i, call(i)))) for i in range(24)]
    for t in threads:
        t.start()
    for _ in range(3):
        own.restart_runner(kill=True)
    for t in threads:
        t.join(120)
    assert len(results) == 24
    for i, answer in results:
        assert answer["exit_code"] == 0 and answer["stdout"] == f"{i}\n"
    counts = own.sh("b", "cat c* | wc -l").strip()
    assert counts == "24", "each ran exactly once"


def test_history_of_an_answered_exec_is_recovered(own):
    """The row of an exec is written just after its answer: killed between the two, the next runner writes it."""
    own.sh("b", "true")
    own.end("runner", signal.SIGKILL)
    args = {"sandbox": "b", "command": "echo 'who knows'", "timeout_ms": 60000}
    result = {"status": "finished", "exit_code": 3, "stdout": "", "stderr": "", "duration_ms": 12}
    db = sqlite3.connect(own.state_db, timeout=20)
    with db:
        db.execute("INSERT INTO requests (id, kind, args, state, reply, created_at, deadline, run_id, ok, result)"
                   " VALUES (77, 'exec', ?, 2, 'gone', 1700000000000, 1700000060000, ?, 1, ?)",
                   (json.dumps(args), "01hf7yat00" + "a" * 16, json.dumps(result)))
    db.close()
    own.start_runner()
    own.wait_healthy()
    rows = own.sql("SELECT sandbox, command, status, exit_code, ended_at, duration_us, job FROM runs WHERE id LIKE '01hf7yat00%'")
    assert rows == [("b", args["command"], "finished", 3, 1700000000012, 12000, 0)]


def test_the_runner_down(own):
    own.sh("b", "echo x > f")
    job = own.ok("run_background", sandbox="b", command="echo j")["job_id"]
    own.job_end(job)
    own.end("runner")
    for tool, args in [("exec", {"command": "true"}), ("run_background", {"command": "true"}),
                       ("create_sandbox", {"sandbox": "c"}), ("destroy_sandbox", {"sandbox": "b"})]:
        start = time.monotonic()
        e = own.fails(tool, **{"sandbox": "b", **args})
        assert time.monotonic() - start < 10, "at once, no wait"
        assert e["code"] == "runner_down" and "jobs-runner" in e["error"]
        assert "\n" not in e["error"] and "make up" in e["fix"]
    # what needs no runner goes on
    assert own.rpc("ping")["result"] == {}
    assert own.rpc("tools/list")["result"]["tools"]
    assert [i["name"] for i in own.ok("list_sandboxes")["items"]] == ["b"]
    assert own.ok("read_text", sandbox="b", path="f")["content"] == "x\n"
    own.ok("write_text", sandbox="b", path="g", content="y")
    assert [e["name"] for e in own.ok("list_files", sandbox="b")["entries"]] == ["f", "g"]
    assert own.ok("get_job", job_id=job)["log_tail"] == "j\n"
    r = wait_for(lambda: (r := own.health()).status == 503 and r, 10, "/healthz says so")
    body = json.loads(r.body)
    assert body["ok"] is False and "runner" in r.body.decode()
    own.start_runner()
    assert own.sh("b", "cat f g") == "x\ny"


def test_kill_9_of_workers(own):
    own.sh("b", "true")
    for pid in own.worker_pids():
        os.kill(pid, signal.SIGKILL)
    wait_for(lambda: try_ping(own), 10, "the next request is served")
    wait_for(lambda: len(own.worker_pids()) >= 4, 10, "the workers are there again")
    os.kill(own.worker_pids()[0], signal.SIGKILL)
    assert own.sh("b", "echo fine") == "fine\n"


def try_ping(own):
    r = own.post({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    return r.status == 200 and json.loads(r.body)["result"] == {}


def test_one_worker_killed_while_others_serve(own):
    own.sh("b", "true")
    stop = threading.Event()

    def killer():
        while not stop.is_set():
            for pid in own.worker_pids()[:1]:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            stop.wait(0.2)

    thread = threading.Thread(target=killer)
    thread.start()
    good = 0
    for i in range(60):
        r = own.post({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                      "params": {"name": "exec", "arguments": {"sandbox": "b", "command": f"echo {i}"}}})
        good += r.status == 200 and json.loads(r.body)["result"]["structuredContent"]["stdout"] == f"{i}\n"
    stop.set()
    thread.join()
    assert good >= 50, "only the requests in the killed workers are lost"


def test_the_responder_ends_cleanly_and_finishes_what_it_began(own):
    own.sh("b", "true")
    result = {}
    thread = threading.Thread(target=lambda: result.update(r=own.call("exec", sandbox="b", command="touch on; sleep 1; echo done")))
    thread.start()
    wait_for(lambda: (own.workspace("b") / "on").exists(), 20, "it runs")
    assert own.end("responder") == 0
    thread.join(30)
    assert result["r"][0]["stdout"] == "done\n"
    own.start_responder()
    own.wait_healthy()


def test_a_client_that_leaves(own):
    """The caller is gone; the server goes on, and the worker is free again."""
    import socket
    own.sh("b", "true")
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "exec", "arguments": {"sandbox": "b", "command": "sleep 2; echo x > left"}}})
    for _ in range(8):
        s = socket.create_connection(("127.0.0.1", own.port))
        s.sendall((f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {own.settings['SMCP_TOKEN']}\r\n"
                   f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}").encode())
        s.close()
    assert own.sh("b", "echo here") == "here\n"
    wait_for(lambda: own.sql("select count(*) from requests where state<2")[0][0] == 0, 30, "no request stays open")


def test_lighttpd_and_responder_restart_during_a_job(own):
    job = own.ok("run_background", sandbox="b", command=COUNT.format(n=60, pause=0.05))["job_id"]
    own.end("responder", signal.SIGKILL)
    own.start_responder()  # the workers of the old one may still hold the socket
    wait_for(lambda: len(own.worker_pids()) >= 4, 20, "the new one serves")
    end = own.job_end(job)
    assert (end["status"], end["log_tail"]) == ("finished", lines(60))


def test_no_docker():
    s = Server(SMCP_DOCKER_SOCKET="/nonexistent/docker.sock")
    try:
        s.start(healthy=False)
        r = wait_for(lambda: (r := s.health()) and r.status == 503 and r, 20, "an answer")
        assert r.status == 503 and "docker" in r.body.decode().lower()
        start = time.monotonic()
        e = s.fails("exec", sandbox="b", command="true")
        assert time.monotonic() - start < 30
        assert "docker" in (e["error"] + e["fix"]).lower()
        assert s.rpc("tools/list")["result"]["tools"]
        assert all(p.poll() is None for p in s.programs.values())
    finally:
        for name in list(s.programs):
            s.end(name)


def test_nothing_is_synced_and_no_process_is_started_per_exec(own):
    """The speed of exec depends on it: no fsync, and no exec on the host."""
    own.sh("b", "true")
    out = own.dir / "strace"
    pids = [own.pid("runner"), own.pid("responder"), *own.worker_pids()]
    argv = ["strace", "-f", "-qq", "-e", "trace=fsync,fdatasync,sync_file_range,execve,sync", "-o", str(out)]
    for pid in pids:
        argv += ["-p", str(pid)]
    tracer = subprocess.Popen(argv, stderr=subprocess.DEVNULL)
    try:
        for pid in pids:
            wait_for(lambda: f"TracerPid:\t{tracer.pid}" in open(f"/proc/{pid}/status").read(), 10, "strace is attached")
        parallel(4, lambda i: [own.sh("b", f"echo {k}") for k in range(25)])
    finally:
        tracer.send_signal(signal.SIGINT)
        tracer.wait(20)
    assert out.exists()
    calls = [line for line in out.read_text().splitlines() if "(" in line and "resumed" not in line]
    assert calls == []


def test_the_wal_does_not_grow_for_ever(own):
    own.sh("b", "true")
    parallel(8, lambda i: [own.sh("b", "true") for _ in range(60)])
    wal = own.dir / "state.db-wal"
    assert not wal.exists() or wal.stat().st_size < 32 << 20


def test_descriptors_do_not_leak(own):
    own.sh("b", "true")

    def fds(pid):
        return len(os.listdir(f"/proc/{pid}/fd"))

    def everything():
        parallel(8, lambda i: [own.sh("b", f"echo {k}") for k in range(10)])
        job = own.ok("run_background", sandbox="b", command="echo x")["job_id"]
        own.job_end(job)
        own.ok("list_files", sandbox="b")
        own.fails("read_text", sandbox="b", path="none")

    everything()
    base = fds(own.pid("runner"))
    for _ in range(3):
        everything()
    wait_for(lambda: fds(own.pid("runner")) <= base + 3, 15, "the runner closes what it opened")
    assert max(fds(p) for p in own.worker_pids()) < 40
