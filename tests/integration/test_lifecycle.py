"""Sandboxes: created when used, bounded, found again or healed, removed with what belongs to them."""

import json
import os
import re
import subprocess
import threading

import pytest

from server import MINI, docker, wait_for


def listed(server, name):
    found = [i for i in server.ok("list_sandboxes")["items"] if i["name"] == name]
    assert len(found) <= 1
    return found[0] if found else None


def test_create_list_destroy(server, box):
    r = server.ok("create_sandbox", sandbox=box)
    assert r["name"] == box and r["created"] is True and r["status"] == "running"
    again = server.ok("create_sandbox", sandbox=box)
    assert again["created"] is False
    item = listed(server, box)
    assert item["status"] == "running" and item["image"] == MINI
    assert re.match(r"\d{4}-\d\d-\d\dT", item["created_at"])
    assert item["running_jobs"] == 0
    server.sh(box, "echo x > kept")
    d = server.ok("destroy_sandbox", sandbox=box)
    assert (d["name"], d["destroyed"], d["files_deleted"]) == (box, True, False)
    assert listed(server, box) is None
    assert server.containers(box) == []
    assert (server.workspace(box) / "kept").read_text() == "x\n"
    r = server.ok("exec", sandbox=box, command="cat kept")
    assert r["stdout"] == "x\n" and r["sandbox_created"] is True, "the files are there again"
    d = server.ok("destroy_sandbox", sandbox=box, delete_files=True)
    assert d["files_deleted"] is True
    wait_for(lambda: not server.workspace(box).exists(), 10, "the files are gone")
    assert server.ok("exec", sandbox=box, command="ls")["stdout"] == ""


def test_what_lies_beside_the_socket_goes_too(server, box):
    """The sandbox can write there; RUN_DIR is often in memory."""
    server.sh(box, "cd /run/sandbox-mcp && mkdir -p a/b && echo x > a/b/c && ln -s /etc a/b/d && echo y > y")
    server.ok("destroy_sandbox", sandbox=box)
    wait_for(lambda: {p.name for p in (server.run_dir / "sb").rglob("*")} & {box, "c", "d", "y"} == set(),
             10, "the socket directory is gone")


def test_destroying_what_is_not_there(server):
    answer, is_error = server.call("destroy_sandbox", sandbox="never-made")
    if is_error:
        assert answer["code"] == "not_found" and "never-made" in answer["error"]
    else:
        assert answer["destroyed"] is False


def test_tools_that_only_look_create_nothing(server):
    for tool, args in [("list_files", {}), ("read_text", {"path": "x"})]:
        e = server.fails(tool, sandbox="only-looked-at", **args)
        assert e["code"] == "not_found"
    assert listed(server, "only-looked-at") is None
    assert server.containers("only-looked-at") == []


def test_the_default_sandbox(server):
    try:
        r = server.ok("exec", command="pwd")
        assert r["stdout"] == "/workspace\n"
        assert listed(server, "default")
    finally:
        server.call("destroy_sandbox", sandbox="default", delete_files=True)


@pytest.mark.parametrize("name", [
    "", ".", "..", "-a", "_a", ".hidden", "a/b", "../x", "a b", "a\n", "é", "a:b", "a" * 64, "$(id)", "a;b", 5, True, [],
])
def test_wrong_names(server, name):
    for tool, more in [("exec", {"command": "true"}), ("create_sandbox", {}), ("list_files", {}),
                       ("destroy_sandbox", {})]:
        answer, is_error = server.call(tool, sandbox=name, **more)
        if name == 5 and not is_error:
            continue
        assert is_error and "sandbox" in answer["error"], (tool, answer)
    assert not (server.data_dir / "x").exists()


@pytest.mark.parametrize("name", ["A", "0", "a.b_c-D9", "x" * 63])
def test_good_names(server, name):
    try:
        assert server.sh(name, "echo ok") == "ok\n"
        assert len(server.containers(name)) == 1
    finally:
        server.call("destroy_sandbox", sandbox=name, delete_files=True)


def test_limits_and_hardening(server, box):
    server.ok("create_sandbox", sandbox=box, memory="256m", cpus=0.5, env={"A": "b c"})
    c = server.inspect(box)
    host = c["HostConfig"]
    assert host["Memory"] == 256 << 20 and host["MemorySwap"] == 256 << 20
    assert host["NanoCpus"] == 500_000_000
    assert host["PidsLimit"] == 512
    assert host["Privileged"] is False
    assert any(o.startswith("no-new-privileges") for o in host["SecurityOpt"])
    dropped = {d.removeprefix("CAP_") for d in host["CapDrop"]}
    assert dropped >= {"NET_RAW", "MKNOD", "AUDIT_WRITE", "SETPCAP"} or "ALL" in dropped
    assert host["RestartPolicy"]["Name"] in ("", "no")
    labels = c["Config"]["Labels"]
    assert labels["io.sandbox_mcp"] == "1"
    assert labels["io.sandbox_mcp.name"] == box
    assert labels["io.sandbox_mcp.instance"] == server.instance()
    mounts = {m["Destination"]: m for m in c["Mounts"]}
    assert mounts["/workspace"]["Source"] == str(server.workspace(box)) and mounts["/workspace"]["RW"] is True
    assert mounts["/usr/local/sbin/sandbox-agent"]["RW"] is False
    assert not any("docker.sock" in m["Source"] for m in c["Mounts"])
    assert set(mounts) <= {"/workspace", "/usr/local/sbin/sandbox-agent", "/run/sandbox-mcp"}
    assert c["Name"].startswith(f"/smcp-{box}")
    assert server.sh(box, "echo $A") == "b c\n", "the environment of the sandbox"
    item = listed(server, box)
    assert item["limits"]["memory"] == 256 << 20 and item["limits"]["cpus"] == 0.5


def test_defaults_of_limits(server, box):
    server.ok("create_sandbox", sandbox=box)
    host = server.inspect(box)["HostConfig"]
    assert host["Memory"] == host["MemorySwap"] == 2 << 30
    assert host["NanoCpus"] == min(2, os.cpu_count()) * 1_000_000_000
    assert host["PidsLimit"] == 512


@pytest.mark.parametrize("arguments,word", [
    ({"memory": "1k"}, "memory"),
    ({"memory": "lots"}, "memory"),
    ({"memory": -1}, "memory"),
    ({"cpus": 0}, "cpus"),
    ({"cpus": -1}, "cpus"),
    ({"cpus": "many"}, "cpus"),
    ({"env": {"": "x"}}, "env"),
    ({"env": "A=b"}, "env"),
    ({"ttl_seconds": 0}, "ttl_seconds"),
    ({"network": "no-such-network"}, "network"),
    ({"runtime": "no-such-runtime"}, "runtime"),
    ({"image": ""}, "image"),
    ({"image": "UPPER CASE IMAGE"}, "image"),
    ({"image": "127.0.0.1:1/no/such:image"}, "image"),
])
def test_create_refuses(server, box, arguments, word):
    e = server.fails("create_sandbox", sandbox=box, **arguments)
    assert word in e["error"].lower(), e
    assert listed(server, box) is None
    assert server.containers(box) == []
    assert server.sh(box, "echo ok") == "ok\n", "the name is not spoilt"


def test_network_none(server, box):
    server.ok("create_sandbox", sandbox=box, network="none")
    assert server.inspect(box)["HostConfig"]["NetworkMode"] == "none"
    assert server.sh(box, "ls /sys/class/net").split() == ["lo"]


def test_network_default(server, box):
    assert "eth0" in server.sh(box, "ls /sys/class/net")


# ---- behind our back ----

def behind(server, box, how):
    container = server.container(box)
    if how == "removed":
        docker("rm", "-f", container)
    elif how == "stopped":
        docker("stop", "-t", "0", container)
    elif how == "killed":
        docker("kill", container)
    elif how == "paused":
        docker("pause", container)
    elif how == "renamed":
        docker("rename", container, f"renamed-{container[:12]}")
    elif how == "restarted":
        docker("restart", "-t", "0", container)
    return container


@pytest.mark.parametrize("how", ["removed", "stopped", "killed", "paused", "renamed", "restarted"])
def test_the_next_call_heals(server, box, how):
    server.ok("create_sandbox", sandbox=box, memory="300m", env={"KEPT": "yes"})
    server.sh(box, "echo data > file")
    before = behind(server, box, how)
    r = server.ok("exec", sandbox=box, command="cat file; echo $KEPT")
    assert (r["exit_code"], r["stdout"]) == (0, "data\nyes\n")
    assert server.inspect(box)["HostConfig"]["Memory"] == 300 << 20
    after = server.container(box)
    if how == "removed":
        assert after != before
    else:
        assert after == before
    if how in ("removed", "stopped", "killed"):
        assert r["recreated"] is True and r["reason"], "it says so"
    if how == "paused":
        assert r["reason"]
    r = server.ok("exec", sandbox=box, command="echo again")
    assert r["stdout"] == "again\n" and not r.get("recreated") and not r.get("reason")


@pytest.mark.parametrize("how", ["removed", "stopped"])
def test_a_job_says_what_was_healed(server, box, how):
    server.sh(box, "true")
    behind(server, box, how)
    r = server.ok("run_background", sandbox=box, command="echo job")
    assert r["recreated"] is True and r["reason"]
    assert server.job_end(r["job_id"])["log_tail"] == "job\n"


def test_a_running_command_is_never_run_twice(server, box):
    server.sh(box, "true")
    result = {}

    def slow():
        result["r"] = server.call("exec", sandbox=box, command="echo x >> count; sleep 30; echo end", wait=60)

    thread = threading.Thread(target=slow)
    thread.start()
    wait_for(lambda: (server.workspace(box) / "count").exists(), 20, "it runs")
    docker("rm", "-f", server.container(box))
    thread.join(30)
    assert not thread.is_alive(), "the caller is told at once"
    answer, is_error = result["r"]
    if not is_error:
        assert answer["status"] == "lost" and answer["reason"]
    assert server.sh(box, "wc -l < count").strip() == "1"


def test_a_paused_command_goes_on(server, box):
    r = server.ok("run_background", sandbox=box, command="i=0; while [ $i -lt 20 ]; do i=$((i+1)); echo $i; sleep 0.1; done")
    docker("pause", server.container(box))
    assert server.sh(box, "echo awake") == "awake\n"
    end = server.job_end(r["job_id"])
    assert (end["status"], end["log_tail"]) == ("finished", "".join(f"{i}\n" for i in range(1, 21)))


def test_the_agent_killed_from_the_host(server, box):
    server.sh(box, "echo x > file")
    pid = server.inspect(box)["State"]["Pid"]
    os.kill(pid, 9)
    wait_for(lambda: not server.inspect(box)["State"]["Running"], 10, "Docker knows")
    r = server.ok("exec", sandbox=box, command="cat file")
    assert r["stdout"] == "x\n" and r["recreated"] is True and r["reason"]


def test_the_agent_dies_just_as_it_is_called(server, box):
    """Told truly in every case: it ran, or it was lost with a reason; and never twice."""
    for i in range(5):
        server.sh(box, "true")
        os.kill(server.inspect(box)["State"]["Pid"], 9)
        r = server.ok("exec", sandbox=box, command=f"echo x >> count; echo {i}")
        if r["status"] == "finished":
            assert (r["stdout"], r["exit_code"]) == (f"{i}\n", 0) and r["recreated"] is True
        else:
            assert r["status"] == "lost" and r["reason"] and r.get("exit_code") is None
    assert int(server.sh(box, "cat count 2>/dev/null | wc -l")) <= 5


def test_a_foreign_container_with_our_name_is_left_alone(server):
    name = "taken-name"
    foreign = docker("create", "--name", f"smcp-{name}", "--label", "io.sandbox_mcp.test=1", MINI, "/bin/sh")
    try:
        assert server.sh(name, "echo mine") == "mine\n"
        assert server.container(name) != foreign
        server.ok("destroy_sandbox", sandbox=name, delete_files=True)
        assert docker("inspect", "-f", "{{.Id}}", foreign) == foreign
    finally:
        docker("rm", "-f", foreign)
        server.call("destroy_sandbox", sandbox=name, delete_files=True)


def test_the_workspace_removed_behind_our_back(server, box):
    server.sh(box, "echo x > file")
    docker("rm", "-f", server.container(box))
    subprocess.run(["rm", "-rf", str(server.data_dir / box)], check=True)
    r = server.ok("exec", sandbox=box, command="ls; echo ok")
    assert r["stdout"] == "ok\n" and r["recreated"] is True


def test_destroy_while_a_command_runs(server, box):
    r = server.ok("run_background", sandbox=box, command="sleep 300")
    server.ok("destroy_sandbox", sandbox=box)
    end = server.job_end(r["job_id"], 20)
    assert end["status"] in ("lost", "stopped") and end["reason"]


def test_destroy_ends_a_waiting_exec(server, box):
    server.sh(box, "true")
    result = {}
    thread = threading.Thread(target=lambda: result.update(r=server.call("exec", sandbox=box, command="touch on; sleep 300", wait=120, timeout=250)))
    thread.start()
    wait_for(lambda: (server.workspace(box) / "on").exists(), 20, "it runs")
    server.ok("destroy_sandbox", sandbox=box)
    thread.join(30)
    assert not thread.is_alive()
    assert "r" in result


def test_the_cap(make_server):
    s = make_server(SMCP_MAX_SANDBOXES=3)
    for i in range(3):
        s.sh(f"b{i}", "true")
    e = s.fails("exec", sandbox="b3", command="true")
    assert "3" in e["error"] and e["code"] and "destroy_sandbox" in e["fix"]
    assert s.fails("create_sandbox", sandbox="b3")["code"] == e["code"]
    assert s.sh("b0", "echo old ones go on") == "old ones go on\n"
    s.ok("destroy_sandbox", sandbox="b1")
    assert s.sh("b3", "echo room again") == "room again\n"


def test_settings_are_the_defaults_of_a_sandbox(make_server):
    s = make_server(SMCP_MEM_LIMIT="128m", SMCP_CPUS="0.5", SMCP_PIDS_LIMIT=99, SMCP_SANDBOX_NETWORK="none",
                    SMCP_CONTAINER_PREFIX="other-")
    s.sh("b", "true")
    c = s.inspect("b")
    assert c["HostConfig"]["Memory"] == 128 << 20
    assert c["HostConfig"]["NanoCpus"] == 500_000_000
    assert c["HostConfig"]["PidsLimit"] == 99
    assert c["HostConfig"]["NetworkMode"] == "none"
    assert c["Name"].startswith("/other-b")


def test_two_servers_do_not_see_each_other(server, make_server, box):
    other = make_server()
    server.sh(box, "echo one > f")
    other.sh(box, "echo two > f")
    assert server.sh(box, "cat f") == "one\n" and other.sh(box, "cat f") == "two\n"
    other.ok("destroy_sandbox", sandbox=box, delete_files=True)
    assert server.sh(box, "cat f") == "one\n"


def test_list_sandboxes_tells_of_jobs_and_time(server, box):
    r = server.ok("run_background", sandbox=box, command="sleep 300")
    item = wait_for(lambda: (i := listed(server, box)) and i["running_jobs"] == 1 and i, 20, "the job is counted")
    assert item["last_used"] >= item["created_at"]
    server.ok("stop_job", job_id=r["job_id"])
    server.job_end(r["job_id"])
    assert listed(server, box)["running_jobs"] == 0
    json.dumps(item)
