"""Files of the sandbox: verbatim names, and nothing in the workspace reaches or hangs the host."""

import os
import threading

import pytest

from server import wait_for


def names(server, box, **args):
    return [e["name"] for e in server.ok("list_files", sandbox=box, **args)["entries"]]


@pytest.fixture(scope="module")
def shared(server):
    name = "files-shared"
    server.ok("create_sandbox", sandbox=name)
    yield name
    server.call("destroy_sandbox", sandbox=name, delete_files=True)


@pytest.mark.parametrize("content", [
    "", "x", "line\n", "no end", "a\r\nb\n", "中文 é 😀\n", "\u2028\u0001\u007f", "'; rm -rf / #\n$(id)`id`\n",
    "x" * 150000,
])
def test_write_and_read(server, shared, content):
    w = server.ok("write_text", sandbox=shared, path="f.txt", content=content)
    assert w["size"] == len(content.encode())
    r = server.ok("read_text", sandbox=shared, path="f.txt")
    assert r["content"] == content and r["size"] == len(content.encode())
    assert not r.get("truncated")
    assert server.sh(shared, "wc -c < f.txt").strip() == str(len(content.encode()))


@pytest.mark.parametrize("kb", [12, 130, 1000, 5000])
def test_sizes_have_no_cliff(server, shared, kb):
    content = ("awkward ' \" \\ $ \t é\n" * (kb * 60))[: kb * 1000]
    server.ok("write_text", sandbox=shared, path="big", content=content)
    assert server.workspace(shared).joinpath("big").read_text() == content


def test_writing_creates_the_sandbox_and_parents(server, box):
    w = server.ok("write_text", sandbox=box, path="a/b/c.txt", content="x")
    assert w["path"].endswith("a/b/c.txt")
    assert server.sh(box, "cat a/b/c.txt") == "x"


def test_append_and_mode(server, shared):
    server.ok("write_text", sandbox=shared, path="log", content="one\n", mode="640")
    server.ok("write_text", sandbox=shared, path="log", content="two\n", append=True)
    assert server.sh(shared, "cat log; stat -c %a log") == "one\ntwo\n640\n"
    server.ok("write_text", sandbox=shared, path="log", content="new\n")
    assert server.sh(shared, "cat log; stat -c %a log") == "new\n640\n", "the mode is kept"
    server.ok("write_text", sandbox=shared, path="run.sh", content="#!/bin/sh\necho ran\n", mode="755")
    assert server.sh(shared, "./run.sh") == "ran\n"
    server.ok("write_text", sandbox=shared, path="new-one", content="a", append=True)
    assert server.ok("read_text", sandbox=shared, path="new-one")["content"] == "a"


@pytest.mark.parametrize("mode", ["9", "0x1", "abc", "77777", "-1", ""])
def test_a_wrong_mode(server, shared, mode):
    answer, is_error = server.call("write_text", sandbox=shared, path="m", content="x", mode=mode)
    if mode == "" and not is_error:
        return
    assert is_error and "mode" in answer["error"]


def test_a_write_replaces_as_a_whole(server, box):
    server.ok("write_text", sandbox=box, path="f", content="first")
    before = os.stat(server.workspace(box) / "f").st_ino
    server.ok("write_text", sandbox=box, path="f", content="second")
    assert os.stat(server.workspace(box) / "f").st_ino != before, "a new file took the name"
    assert names(server, box) == ["f"], "no temporary file is left"


AWKWARD = [
    "-rf", "--help", " lead", "trail ", "a\nb", "q'\"$(id)`id`;", "*", "?", "~", "日本語", "e\u0301", "é", "a -> b", "...",
    "\\", "a\\n", "a\tb", "%s%n", "#x", "&&", "x" * 255, "$(touch pwn)", "a;touch pwn",
]


def test_awkward_names_work_verbatim(server, box):
    for i, name in enumerate(AWKWARD):
        server.ok("write_text", sandbox=box, path=name, content=f"content {i}")
    assert names(server, box) == sorted(AWKWARD, key=lambda n: n.encode())
    for i, name in enumerate(AWKWARD):
        assert server.ok("read_text", sandbox=box, path=name)["content"] == f"content {i}", name
        absolute = server.ok("read_text", sandbox=box, path="/workspace/" + name)
        assert absolute["content"] == f"content {i}", name
    assert sorted(os.listdir(server.workspace(box))) == sorted(AWKWARD), "and nothing else, no pwn"


@pytest.mark.parametrize("path", ["", "x" * 256, "a/" * 3000 + "f", ".", "/workspace", "/", "a\u0000b"])
def test_paths_that_cannot_be_written(server, shared, path):
    if "\u0000" in path:
        r = server.post('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"write_text",'
                        '"arguments":{"path":"a\\u0000b","content":"x","sandbox":"files-shared"}}}')
        assert r.status == 400
        return
    e = server.fails("write_text", sandbox=shared, path=path, content="x")
    assert e["error"]


def test_list_files(server, box):
    server.sh(box, "mkdir -p d/e; echo abc > d/f; ln -s d/f link; ln -s /nowhere dangling; mkfifo pipe; chmod 4750 d/f")
    entries = {e["name"]: e for e in server.ok("list_files", sandbox=box)["entries"]}
    assert sorted(entries) == ["d", "dangling", "link", "pipe"]
    assert entries["d"]["type"] == "directory"
    assert entries["link"]["target"] == "d/f" and entries["dangling"]["target"] == "/nowhere"
    assert entries["pipe"]["type"] == "fifo"
    inside = server.ok("list_files", sandbox=box, path="d")["entries"]
    assert [(e["name"], e["type"]) for e in inside] == [("e", "directory"), ("f", "file")]
    assert inside[1]["size"] == 4 and inside[1]["mode"].lstrip("0") == "4750"
    every = names(server, box, recursive=True)
    assert every == ["d", "d/e", "d/f", "dangling", "link", "pipe"]
    assert names(server, box, path="d/") == names(server, box, path="/workspace/d") == ["e", "f"]


def test_a_large_folder_is_paged(server, box):
    server.sh(box, "mkdir d; cd d; i=0; while [ $i -lt 3000 ]; do : > f$i; i=$((i+1)); done", timeout=60)
    seen, cursor, pages = [], None, 0
    while True:
        args = {"cursor": cursor} if cursor else {}
        r = server.ok("list_files", sandbox=box, path="d", limit=700, **args)
        assert len(r["entries"]) <= 700
        seen += [e["name"] for e in r["entries"]]
        pages += 1
        cursor = r.get("next_cursor")
        if not cursor:
            break
    assert pages == 5 and seen == sorted(f"f{i}" for i in range(3000))


def test_a_broken_cursor(server, shared):
    answer, is_error = server.call("list_files", sandbox=shared, cursor="\x01nonsense/../..")
    assert is_error or isinstance(answer["entries"], list)


def test_read_by_lines(server, shared):
    server.ok("write_text", sandbox=shared, path="lines", content="".join(f"line {i}\n" for i in range(1, 101)))
    r = server.ok("read_text", sandbox=shared, path="lines", start_line=10, max_lines=3)
    assert r["content"] == "line 10\nline 11\nline 12\n" and r["truncated"] is True
    r = server.ok("read_text", sandbox=shared, path="lines", start_line=99)
    assert r["content"] == "line 99\nline 100\n"
    assert server.ok("read_text", sandbox=shared, path="lines", start_line=101)["content"] == ""


def test_a_large_file_is_cut(server, shared):
    server.sh(shared, "yes 中 | tr -d '\\n' | head -c 600000 > large")
    r = server.ok("read_text", sandbox=shared, path="large")
    assert r["truncated"] is True and r["size"] == 600000
    assert set(r["content"]) == {"中"} and 190000 < len(r["content"].encode()) <= 200000


@pytest.mark.parametrize("printf,content,encoding", [
    (r"\326\320\316\304\262\342\312\324", "中文测试", "gb18030"),
    (r"a\377b", "a\ufffdb", "binary"),
    (r"a\0b", "a\0b", None),
])
def test_files_in_other_encodings(server, shared, printf, content, encoding):
    server.sh(shared, f"printf '{printf}' > enc")
    r = server.ok("read_text", sandbox=shared, path="enc")
    assert r["content"] == content
    if encoding:
        assert r["encoding"] == encoding


def test_what_is_not_there(server, shared):
    e = server.fails("read_text", sandbox=shared, path="no/such")
    assert e["code"] == "not_found" and "no/such" in e["error"]
    e = server.fails("list_files", sandbox=shared, path="no/such")
    assert e["code"] == "not_found"
    server.sh(shared, "mkdir -p dir; echo x > plain")
    assert "dir" in server.fails("read_text", sandbox=shared, path="dir")["error"]
    assert server.fails("list_files", sandbox=shared, path="plain")["error"]
    assert server.fails("write_text", sandbox=shared, path="plain/below", content="x")["error"]
    assert server.fails("write_text", sandbox=shared, path="dir", content="x")["error"]


def test_absolute_paths_are_those_of_the_sandbox(server, box):
    server.sh(box, "echo inside > /tmp/f; mkdir -p /opt/d; echo marker > /etc/marker")
    assert server.ok("read_text", sandbox=box, path="/tmp/f")["content"] == "inside\n"
    assert server.ok("read_text", sandbox=box, path="/etc/marker")["content"] == "marker\n"
    server.ok("write_text", sandbox=box, path="/opt/d/new/file", content="written", mode="600")
    assert server.sh(box, "cat /opt/d/new/file; stat -c %a /opt/d/new/file") == "written600\n"
    server.ok("write_text", sandbox=box, path="/opt/d/new/file", content=" more", append=True)
    assert server.sh(box, "cat /opt/d/new/file") == "written more"
    assert "f" in names(server, box, path="/tmp")
    assert server.ok("read_text", sandbox=box, path="../tmp/f")["content"] == "inside\n"
    assert not os.path.exists("/opt/d/new/file") and not os.path.exists("/etc/marker")
    big = "z" * 500000
    server.ok("write_text", sandbox=box, path="/tmp/big", content=big)
    assert server.sh(box, "wc -c < /tmp/big").strip() == "500000"


# ---- what lies in the workspace must not reach the host ----

@pytest.fixture
def trap(server, box):
    """A sandbox full of traps, and a canary on the host that they aim at."""
    canary = server.dir / "canary"
    canary.mkdir(exist_ok=True)
    (canary / "secret").write_text("HOST SECRET\n")
    server.sh(box, f"""
        echo SANDBOX > /etc/shadow-test
        ln -s /etc etc
        ln -s {canary} leak
        ln -s {canary}/secret leakfile
        ln -s {canary}/new w
        ln -s ../../canary up
        ln -s ../../../../../../../../..{canary} far
        ln -s /proc/1/root/{canary} magic
        ln -s /proc/self/root proot
        ln -s loop2 loop1; ln -s loop1 loop2
        mkfifo fifo
        mkdir d; ln -s ../.. d/up2
    """)
    yield box, canary
    assert (canary / "secret").read_text() == "HOST SECRET\n"
    assert sorted(os.listdir(canary)) == ["secret"]


@pytest.mark.parametrize("path", [
    "leak/secret", "leakfile", "up/secret", "far/secret", "magic/secret", "proot/{c}/secret", "{c}/secret",
    "../../canary/secret", "../../../../../../../../{c}/secret", "d/up2/canary/secret", "d/up2/../../canary/secret",
    "/workspace/../../../../{c}/secret", "/proc/1/root/{c}/secret", "/proc/self/cwd/../../../..{c}/secret",
    "/workspace/leak/secret", "./leak/./secret", "leak//secret",
])
def test_no_path_reads_the_host(server, trap, path):
    box, canary = trap
    path = path.replace("{c}", str(canary))
    answer, is_error = server.call("read_text", sandbox=box, path=path)
    assert "HOST SECRET" not in str(answer)
    assert is_error
    answer, is_error = server.call("list_files", sandbox=box, path=os.path.dirname(path) or ".")
    assert is_error or "secret" not in [e["name"] for e in answer["entries"]]


@pytest.mark.parametrize("path", ["leak/new", "w", "up/new", "far/new", "magic/new", "leakfile", "{c}/new", "../../canary/new",
                                  "d/up2/canary/new"])
def test_no_path_writes_the_host(server, trap, path):
    box, canary = trap
    server.call("write_text", sandbox=box, path=path.replace("{c}", str(canary)), content="EVIL")
    server.call("write_text", sandbox=box, path=path.replace("{c}", str(canary)), content="EVIL", append=True)
    # the trap fixture looks at the canary


def test_links_lead_where_the_sandbox_sees_them(server, trap):
    box, _ = trap
    assert server.ok("read_text", sandbox=box, path="etc/shadow-test")["content"] == "SANDBOX\n"
    server.ok("write_text", sandbox=box, path="etc/made-through-link", content="x")
    assert server.sh(box, "cat /etc/made-through-link") == "x"
    assert not os.path.exists("/etc/made-through-link")


@pytest.mark.parametrize("path", ["fifo", "loop1", "loop1/x"])
def test_fifos_and_loops_do_not_hang(server, trap, path):
    box, _ = trap
    for tool, more in [("read_text", {}), ("write_text", {"content": "x"}), ("list_files", {})]:
        if tool == "write_text" and path == "fifo":
            continue  # an atomic write may replace it
        e = server.fails(tool, sandbox=box, path=path, **more)
        assert e["error"]
    server.call("write_text", sandbox=box, path=path, content="x", append=True)
    assert server.sh(box, "echo healthy") == "healthy\n"


def test_devices_are_not_opened(server, box):
    server.sh(box, "true")
    os.mknod(server.workspace(box) / "zero", 0o666 | 0o020000, os.makedev(1, 5))
    assert server.fails("read_text", sandbox=box, path="zero")["error"]
    server.fails("read_text", sandbox=box, path="/dev/zero")
    server.fails("read_text", sandbox=box, path="/dev/tty")


def test_listing_does_not_follow_links(server, trap):
    box, _ = trap
    every = names(server, box, recursive=True)
    assert "leak" in every and not any(n.startswith(("leak/", "etc/", "up/", "far/", "d/up2/")) for n in every)


def test_delete_does_not_follow_links(server, trap):
    box, canary = trap
    server.ok("destroy_sandbox", sandbox=box, delete_files=True)
    wait_for(lambda: not (server.data_dir / box).exists(), 10, "the files are gone")
    assert (canary / "secret").exists()


def test_the_workspace_replaced_by_a_link(server, box):
    """A hostile program with write access on the host side of the mount cannot be simulated from
    inside: the mount point itself cannot be replaced there."""
    server.sh(box, "rmdir /workspace 2>/dev/null; mv /workspace /w2 2>/dev/null; ln -s /etc /workspace 2>/dev/null; true")
    server.ok("write_text", sandbox=box, path="f", content="x")
    assert (server.workspace(box) / "f").read_text() == "x"


def test_swapping_a_folder_for_a_link_while_files_are_used(server, box):
    canary = server.dir / f"canary-{box}"
    canary.mkdir()
    (canary / "f").write_text("HOST SECRET")
    server.sh(box, "mkdir real; echo inside > real/f; cp -r real dir")
    job = server.ok("run_background", sandbox=box, timeout=120, command=f"""
        while :; do mv dir dir2; ln -s {canary} dir; rm dir; ln -s ../../../../../../..{canary} dir; rm dir; mv dir2 dir; done""")
    stop = threading.Event()
    bad = []

    def use(i):
        for k in range(400):
            if stop.is_set():
                return
            r, is_error = server.call("read_text", sandbox=box, path="dir/f")
            if not is_error and "HOST" in r["content"]:
                bad.append(r)
            server.call("write_text", sandbox=box, path=f"dir/w{i}", content="EVIL")
            if k % 10 == 0:
                r, is_error = server.call("list_files", sandbox=box, path="dir")

    threads = [threading.Thread(target=use, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join(120)
    stop.set()
    server.ok("stop_job", job_id=job["job_id"], signal="KILL")
    assert not bad
    assert (canary / "f").read_text() == "HOST SECRET"
    assert os.listdir(canary) == ["f"]


def test_files_of_a_stopped_sandbox(server, box):
    from server import docker
    server.ok("write_text", sandbox=box, path="f", content="kept")
    docker("stop", "-t", "0", server.container(box))
    assert server.ok("read_text", sandbox=box, path="f")["content"] == "kept"
    assert names(server, box) == ["f"]


def test_files_belong_to_the_user_of_the_sandbox(server, box):
    server.ok("write_text", sandbox=box, path="f", content="x")
    server.sh(box, "echo y >> f; rm f; mkdir d")
    server.ok("write_text", sandbox=box, path="d/g", content="x")
    server.sh(box, "rm -r d")
