"""Many callers at once: one container, right answers, the cap holds."""

import json
import os
import random
import sqlite3
import time

import pytest

from server import parallel, wait_for


class Queue:
    """Requests as the responder writes them, several in one transaction: the runner takes them as one batch."""

    def __init__(self, server):
        self.server = server
        self.db = sqlite3.connect(server.state_db, timeout=10, isolation_level=None)
        self.next = time.time_ns() // 1000

    def add(self, *requests):
        self.db.execute("begin immediate")
        ids = [self.insert(kind, args) for kind, args in requests]
        self.db.execute("commit")
        return ids

    def insert(self, kind, args):
        self.next += 1
        now = time.time_ns() // 1000000
        self.db.execute("insert into requests(id, kind, args, reply, created_at, deadline) values(?,?,?,?,?,?)",
                        (self.next, kind, json.dumps(args), "nobody", now, now + 60000))
        return self.next

    def ring(self):
        fd = os.open(self.server.run_dir / "doorbell", os.O_WRONLY | os.O_NONBLOCK)
        os.write(fd, b"!")
        os.close(fd)

    def look(self, id):
        return self.db.execute("select state, ok, result, run_id from requests where id=?", (id,)).fetchone()

    def answer(self, id):
        """(whether it is a result, the object)"""
        wait_for(lambda: self.look(id)[0] == 2, 30, f"request {id} is answered")
        _, ok, result, _ = self.look(id)
        return ok == 1, json.loads(result)


@pytest.fixture
def queue(server):
    q = Queue(server)
    yield q
    q.db.close()


def test_64_execs_on_a_new_name(server, box):
    results = parallel(64, lambda i: server.ok("exec", sandbox=box, command=f"echo {i}; echo e{i} >&2; exit {i}"))
    for i, r in enumerate(results):
        assert (r["stdout"], r["stderr"], r["exit_code"]) == (f"{i}\n", f"e{i}\n", i)
    assert len(server.containers(box)) == 1
    assert sum(bool(r["sandbox_created"]) for r in results) >= 1


def test_64_execs_while_it_is_destroyed(server, box):
    def one(i):
        if i % 16 == 15:
            return server.call("destroy_sandbox", sandbox=box)
        return server.call("exec", sandbox=box, command=f"echo {i}; exit {i % 7}", timeout=60)

    for _ in range(3):
        for i, (r, is_error) in enumerate(parallel(64, one)):
            if i % 16 == 15:
                continue
            if is_error:  # said clearly, never a hang and never a wrong answer
                assert r["code"] in ("conflict", "canceled", "unavailable", "not_found"), r
            elif r["status"] == "finished":
                assert (r["stdout"], r["exit_code"]) == (f"{i}\n", i % 7)
            else:
                assert r["status"] in ("lost", "stopped") and (r.get("reason") or r.get("end_reason")), r
        assert len(server.containers(box)) <= 1
    assert server.sh(box, "echo after") == "after\n"
    assert len(server.containers(box)) == 1


def test_destroy_and_use_in_one_batch(server, box, queue):
    """The destruction is prepared before the sandbox is there, and done before the command begins."""
    for kind in ("exec", "run"):
        pid = server.pid("runner")
        gone, used = queue.add(("destroy", {"sandbox": box}),
                               (kind, {"sandbox": box, "command": "echo hi", "timeout_ms": 20000}))
        queue.ring()
        assert queue.answer(gone)[0]
        ok, r = queue.answer(used)
        assert ok and r["status"] in ("finished", "running"), r
        assert server.programs["runner"].poll() is None and server.pid("runner") == pid
        server.ok("destroy_sandbox", sandbox=box)


def test_a_run_that_moved_to_the_next_sandbox_is_stopped(server, box, queue):
    """It waited for a sandbox that was destroyed while it was made, and so for the one after it."""
    args = {"sandbox": box, "command": "echo hi > ran", "timeout_ms": 20000}
    run, gone = queue.add(("run", args), ("destroy", {"sandbox": box}))
    queue.ring()
    assert queue.answer(gone)[0]
    stop, = queue.add(("stop", {"job_id": queue.look(run)[3]}))
    queue.ring()
    ok, r = queue.answer(stop)
    assert ok, r
    if r["stopped"]:
        assert queue.answer(run)[1]["status"] == "stopped"
        assert server.sh(box, "ls") == ""
    assert server.sh(box, "echo after") == "after\n"


def test_a_batch_that_cannot_be_recorded_is_taken_later(server, box, queue):
    """The database is locked for longer than the runner waits: nothing is answered, nothing is done twice."""
    name = f"{box}-b"
    command = {"sandbox": name, "command": "echo hi >> ran", "timeout_ms": 20000}
    one, two, = queue.add(("exec", command), ("create", {"sandbox": f"{box}-c"}))
    queue.db.execute("begin immediate")
    queue.ring()
    try:
        wait_for(lambda: "cannot take requests" in server.log("runner"), 30, "the runner gives up for now")
    finally:
        queue.db.execute("rollback")
    try:
        ok, r = queue.answer(one)
        assert ok and r["exit_code"] == 0 and r["sandbox_created"], r
        ok, r = queue.answer(two)
        assert ok and r["created"], r
        assert server.sh(name, "cat ran") == "hi\n"
        assert {name, f"{box}-c"} <= {i["name"] for i in server.ok("list_sandboxes")["items"]}
    finally:
        server.call("destroy_sandbox", sandbox=name)
        server.call("destroy_sandbox", sandbox=f"{box}-c")


def test_one_of_two_callers_of_a_run_leaves(server, box, queue):
    args = {"sandbox": box, "command": "sleep 1; echo hi", "timeout_ms": 20000, "run_id": "again", "wait_ms": 20000}
    one, two, cancel = queue.add(("exec", args), ("exec", args), ("cancel", {"request": queue.next + 1}))
    queue.ring()
    assert queue.answer(cancel) == (True, {"canceled": False})
    for id in (one, two):
        ok, r = queue.answer(id)
        assert ok and r["stdout"] == "hi\n", r


def test_the_cap_under_64_names(make_server):
    s = make_server(SMCP_MAX_SANDBOXES=4)
    results = parallel(64, lambda i: s.call("exec", sandbox=f"n{i}", command=f"echo {i}"))
    good = [(i, r) for i, (r, is_error) in enumerate(results) if not is_error]
    assert len(good) == 4
    for i, r in good:
        assert r["stdout"] == f"{i}\n"
    for r, is_error in results:
        if is_error:
            assert r["code"] and "4" in r["error"], r
    assert len(s.containers()) == 4
    assert len(s.ok("list_sandboxes")["items"]) == 4


def test_create_at_once_creates_once(server, box):
    results = parallel(16, lambda i: server.ok("create_sandbox", sandbox=box))
    assert sum(r["created"] for r in results) == 1
    assert len(server.containers(box)) == 1


def test_heal_at_once_heals_once(server, box):
    from server import docker
    server.sh(box, "echo x > f")
    docker("rm", "-f", server.container(box))
    results = parallel(24, lambda i: server.ok("exec", sandbox=box, command=f"cat f; echo {i}"))
    assert [r["stdout"] for r in results] == [f"x\n{i}\n" for i in range(24)]
    assert len(server.containers(box)) == 1


def test_many_sandboxes_side_by_side(server):
    names = [f"side-{i}" for i in range(8)]
    try:
        def one(i):
            name = names[i % 8]
            for k in range(5):
                assert server.sh(name, f"echo {name} {i} {k}") == f"{name} {i} {k}\n"
        parallel(32, one)
        for name in names:
            assert len(server.containers(name)) == 1
    finally:
        parallel(8, lambda i: server.call("destroy_sandbox", sandbox=names[i], delete_files=True))


def test_mixed_calls_at_random(server, box):
    rng = random.Random(7)
    plans = [[rng.randrange(6) for _ in range(6)] for _ in range(16)]

    def one(i):
        for k, what in enumerate(plans[i]):
            word = f"{i}-{k}"
            if what == 0:
                assert server.sh(box, f"echo {word}") == f"{word}\n"
            elif what == 1:
                job = server.ok("run_background", sandbox=box, command=f"echo {word}")["job_id"]
                assert server.job_end(job)["log_tail"] == f"{word}\n"
            elif what == 2:
                server.ok("write_text", sandbox=box, path=f"f{i}", content=word)
                assert server.ok("read_text", sandbox=box, path=f"f{i}")["content"] == word
            elif what == 3:
                assert any(s["name"] == box for s in server.ok("list_sandboxes")["items"])
            elif what == 4:
                server.ok("list_files", sandbox=box)
            else:
                assert server.rpc("ping")["result"] == {}

    server.sh(box, "true")
    parallel(16, one)


def test_more_callers_than_workers(make_server):
    s = make_server(SMCP_WORKERS_MIN=2, SMCP_WORKERS_MAX=4)
    s.sh("b", "true")
    results = parallel(40, lambda i: s.ok("exec", sandbox="b", command=f"sleep 0.1; echo {i}", timeout=100, wait=100))
    assert [r["stdout"] for r in results] == [f"{i}\n" for i in range(40)]
    assert len(s.worker_pids()) <= 4
    wait_for(lambda: len(s.worker_pids()) < 4, 40, "the workers become fewer again")
