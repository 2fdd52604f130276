"""Clean-up: idle sandboxes stop and go, busy ones never; nothing of nobody stays behind."""


import threading
import time

import pytest

from server import MINI, docker, wait_for


@pytest.fixture(scope="module")
def quick():
    """One server that stops after 2 s without use, removes after 5 s, and looks every second."""
    from server import Server
    s = Server(SMCP_IDLE_STOP_SECONDS=2, SMCP_IDLE_REMOVE_SECONDS=5, SMCP_GC_INTERVAL_SECONDS=1)
    try:
        yield s.start()
    finally:
        s.stop()


def running(s, name):
    ids = s.containers(name)
    return bool(ids) and docker("inspect", "-f", "{{.State.Running}}", ids[0], check=False) == "true"


def test_idle_sandboxes_stop_and_then_go(quick):
    quick.sh("idle", "echo x > f")
    first = quick.container("idle")
    wait_for(lambda: not running(quick, "idle"), 20, "it is stopped")
    assert quick.container("idle") == first
    r = quick.ok("exec", sandbox="idle", command="cat f")
    assert r["stdout"] == "x\n", "the next use starts it"
    assert quick.container("idle") == first
    wait_for(lambda: not quick.containers("idle"), 30, "it is removed")
    wait_for(lambda: not (quick.data_dir / "idle").exists(), 10, "with its files")
    assert quick.ok("list_sandboxes")["items"] == [] or all(
        i["name"] != "idle" for i in quick.ok("list_sandboxes")["items"])
    r = quick.ok("exec", sandbox="idle", command="ls")
    assert r["stdout"] == "" and r["sandbox_created"] is True, "fresh, and said so"


def test_a_stop_by_the_clean_up_is_no_surprise_to_report(quick):
    quick.sh("polite", "true")
    wait_for(lambda: not running(quick, "polite"), 20, "it is stopped")
    r = quick.ok("exec", sandbox="polite", command="echo on")
    assert r["stdout"] == "on\n" and r["exit_code"] == 0


def test_silent_work_is_use(quick):
    result = {}
    thread = threading.Thread(target=lambda: result.update(
        r=quick.ok("exec", sandbox="silent-exec", command="sleep 6.5; echo done", wait=60)))
    thread.start()
    job = quick.ok("run_background", sandbox="silent-job", command="sleep 6.5; echo done")["job_id"]
    thread.join(60)
    assert (result["r"]["stdout"], result["r"]["exit_code"]) == ("done\n", 0)
    end = quick.job_end(job)
    assert (end["status"], end["log_tail"]) == ("finished", "done\n")


def test_looking_at_files_is_use(quick):
    quick.ok("write_text", sandbox="files", path="f", content="x")
    quick.sh("files", "true")
    end = time.monotonic() + 6.5
    while time.monotonic() < end:  # longer than the time after which it would be removed
        assert quick.ok("read_text", sandbox="files", path="f")["content"] == "x"
        time.sleep(0.3)
    assert quick.containers("files")


def test_ttl(quick):
    quick.ok("create_sandbox", sandbox="short", ttl_seconds=2)
    item = [i for i in quick.ok("list_sandboxes")["items"] if i["name"] == "short"]
    assert item and item[0]["expires_at"]
    wait_for(lambda: not quick.containers("short"), 20, "its time is over")
    wait_for(lambda: all(i["name"] != "short" for i in quick.ok("list_sandboxes")["items"]), 10, "it is gone")


def test_the_clean_up_races_with_use(quick):
    """Used again just when it is stopped or removed: live or fresh, never half."""
    for i in range(7):
        r = quick.ok("exec", sandbox="race", command="echo here; ls; echo x > f")
        assert r["exit_code"] == 0 and r["stdout"].startswith("here\n")
        time.sleep(1.7 + i * 0.2)  # around the moment at which the clean-up stops it


def test_orphaned_containers_go(quick):
    label = f"io.sandbox_mcp.instance={quick.instance()}"
    orphan = docker("run", "-d", "--label", "io.sandbox_mcp=1", "--label", label, "--label", "io.sandbox_mcp.name=orphan",
                    MINI, "sleep", "1000")
    try:
        wait_for(lambda: not docker("ps", "-aq", "--filter", f"id={orphan}"), 30, "the orphan is removed")
    finally:
        docker("rm", "-f", orphan, check=False)


def test_containers_of_others_stay(quick):
    others = [docker("run", "-d", "--label", "io.sandbox_mcp=1", "--label", "io.sandbox_mcp.instance=someone-else", MINI, "sleep", "1000"),
              docker("run", "-d", MINI, "sleep", "1000")]
    try:
        quick.ok("create_sandbox", sandbox="marker", ttl_seconds=1)
        wait_for(lambda: not quick.containers("marker"), 20, "a round of the clean-up")
        for c in others:
            assert docker("inspect", "-f", "{{.State.Running}}", c) == "true"
    finally:
        docker("rm", "-f", *others, check=False)


def test_rows_of_requests_do_not_pile_up(quick):
    for _ in range(5):
        quick.sh("rows", "true")
    assert quick.sql("select count(*) from requests where state<2")[0][0] == 0


def test_old_jobs_are_forgotten(make_server):
    """The shortest retention is a minute; the clock of the records is set back instead."""
    import sqlite3
    s = make_server(SMCP_JOB_LOG_RETENTION=60, SMCP_GC_INTERVAL_SECONDS=1)
    old = s.ok("run_background", sandbox="b", command="echo old")["job_id"]
    s.job_end(old)
    log = next(s.data_dir.glob(f".runs/*/{old}.log"))
    new_id = "00" + old[2:]  # a ULID of long ago
    db = sqlite3.connect(s.state_db, timeout=20)
    with db:
        db.execute("update runs set id=?, started_at=1000, ended_at=2000 where id=?", (new_id, old))
    db.close()
    moved = log.with_name(f"{new_id}.log")
    log.rename(moved)
    kept = s.ok("run_background", sandbox="b", command="echo new")["job_id"]
    s.job_end(kept)
    wait_for(lambda: not moved.exists(), 20, "the log is gone")
    for tool in ("get_job", "stop_job"):
        e = s.fails(tool, job_id=new_id)
        assert e["code"] == "expired" and "60 s" in e["fix"], (tool, e)
    assert s.ok("get_job", job_id=kept)["log_tail"] == "new\n"
