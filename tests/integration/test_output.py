"""Output: bounded, counted exactly, and always valid text."""

import json

import pytest

from server import parallel, peak_kb, reset_peak, sanitized

LIMIT = 50000  # SMCP_MAX_OUTPUT, default


@pytest.fixture(scope="module")
def shared(server):
    server.ok("create_sandbox", sandbox="output-shared")
    yield "output-shared"
    server.call("destroy_sandbox", sandbox="output-shared", delete_files=True)


def check_cut(text, full, limit=LIMIT):
    """text is head + a line about the gap + tail of `full`; returns the bytes left out."""
    half = limit // 2
    head, tail = full[:half], full[-half:]
    assert text.startswith(head) and text.endswith(tail)
    gap = text[len(head):len(text) - len(tail)]
    dropped = len(full) - limit
    assert str(dropped) in gap.replace(",", "").replace(" ", ""), gap
    assert len(gap) < 200
    return dropped


@pytest.mark.parametrize("n", [0, 1, LIMIT - 1, LIMIT])
def test_up_to_the_limit_all_of_it(server, shared, n):
    r = server.ok("exec", sandbox=shared, command=f"head -c {n} /dev/zero | tr '\\0' x")
    assert r["stdout"] == "x" * n
    assert not r.get("truncated") and not r.get("dropped_bytes")


def test_one_byte_over_the_limit(server, shared):
    r = server.ok("exec", sandbox=shared, command=f"head -c {LIMIT + 1} /dev/zero | tr '\\0' x")
    assert r["truncated"] is True and r["dropped_bytes"] == 1
    check_cut(r["stdout"], "x" * (LIMIT + 1))


def test_both_streams_are_counted(server, shared):
    r = server.ok("exec", sandbox=shared, command="seq 20000; seq 30000 >&2")
    out = "".join(f"{i}\n" for i in range(1, 20001))
    err = "".join(f"{i}\n" for i in range(1, 30001))
    assert r["dropped_bytes"] == check_cut(r["stdout"], out) + check_cut(r["stderr"], err)


def test_the_full_log_of_a_truncated_exec(server, shared):
    r = server.ok("exec", sandbox=shared, command="seq 100000; exit 4")
    assert r["exit_code"] == 4 and r["truncated"] is True
    full = "".join(f"{i}\n" for i in range(1, 100001))
    assert r["dropped_bytes"] == len(full) - LIMIT
    assert server.job_log(r["job_id"]) == full


def test_three_gigabytes(server, box):
    server.sh(box, "true")
    runner = server.pid("runner")
    reset_peak(runner)
    before = peak_kb(runner)
    n = 3_000_000_000
    r = server.ok("exec", sandbox=box, timeout=280, wait=280,
                  command=f"echo START; yes 0123456789 | head -c {n}; echo END-ERROR >&2; exit 9")
    assert r["exit_code"] == 9 and r["timed_out"] is False, r
    grown = peak_kb(runner) - before
    assert grown < (400 if sanitized() else 16) * 1024, f"the runner grew by {grown} KB"
    assert r["truncated"] is True
    total = len("START\n") + n
    assert r["dropped_bytes"] == total - LIMIT
    line = "0123456789\n"
    half = LIMIT // 2
    assert r["stdout"].startswith(("START\n" + line * half)[:half])
    end = (line * half)[:n % len(line)]
    assert r["stdout"].endswith((line * half + end)[-half:])
    assert str(r["dropped_bytes"]) in r["stdout"]
    assert r["stderr"] == "END-ERROR\n"
    status = server.ok("get_job", job_id=r["job_id"], tail_lines=1, wait=0)
    assert status["log_bytes"] == total + len("END-ERROR\n")
    assert status["log_tail"].endswith("END-ERROR\n")


def test_floods_side_by_side(server, box):
    server.sh(box, "true")
    runner = server.pid("runner")
    reset_peak(runner)
    before = peak_kb(runner)
    n = 20_000_000

    def flood(i):
        return server.ok("exec", sandbox=box, timeout=250, wait=250, command=f"yes {i} | head -c {n}; echo END{i}; exit {i}")

    results = parallel(10, flood)
    for i, r in enumerate(results):
        assert r["exit_code"] == i
        assert r["dropped_bytes"] == n + len(f"END{i}\n") - LIMIT
        assert r["stdout"].endswith(f"END{i}\n") and r["stdout"].startswith(f"{i}\n" * 100)
    assert peak_kb(runner) - before < (400 if sanitized() else 40) * 1024
    assert server.sh(box, "echo quick") == "quick\n"


def test_a_flood_does_not_starve_others(server, box):
    server.sh(box, "true")
    flood = server.ok("run_background", sandbox=box, command="yes")
    for i in range(20):
        assert server.sh(box, f"echo {i}", timeout=20) == f"{i}\n"
    server.ok("stop_job", job_id=flood["job_id"])
    end = server.job_end(flood["job_id"])
    assert end["status"] == "stopped" and end["log_bytes"] > 1_000_000


BAD = "�"
BYTES = [
    (r"\377\376\0\1", BAD * 2 + "\0\1", "binary"),
    (r"\355\240\200", BAD * 3, "binary"),
    (r"\300\257", BAD * 2, "binary"),
    (r"\370\210\200\200\200", BAD * 5, "binary"),
    (r"a\200b", f"a{BAD}b", "binary"),
    (r"a\0b\177\033[31m", "a\0b\x7f\x1b[31m", None),
    (r"\342\200\250x", "\u2028x", None),
    (r"\346\226\207\n", "文\n", None),
    (r"\xd6\xd0\xce\xc4\xb2\xe2\xca\xd4\n", "中文测试\n", "gb18030"),
]


@pytest.mark.parametrize("printf,text,encoding", BYTES)
def test_any_bytes_become_valid_text(server, shared, printf, text, encoding):
    r = server.ok("exec", sandbox=shared, command=f"printf '{printf}'; printf '{printf}' >&2")
    assert (r["stdout"], r["stderr"]) == (text, text)
    assert r.get("encoding") == encoding
    job = server.ok("run_background", sandbox=shared, command=f"printf '{printf}'")
    end = server.job_end(job["job_id"])
    assert end["log_tail"] == text and end.get("encoding") == encoding


def test_random_bytes(server, shared):
    r = server.ok("exec", sandbox=shared, command="head -c 40000 /dev/urandom; head -c 300000 /dev/urandom >&2")
    assert r["exit_code"] == 0 and r["stdout"] and r["stderr"]
    assert r["dropped_bytes"] == 300000 - LIMIT


@pytest.mark.parametrize("text", ["é", "中", "😀", "a中", "ab😀c"])
def test_a_cut_never_breaks_a_character(server, shared, text):
    r = server.ok("exec", sandbox=shared, command=f"yes '{text}' | tr -d '\\n' | head -c 200003")
    # head -c may itself end inside a character: that one at the very end is the only broken one.
    assert BAD not in r["stdout"].rstrip(BAD)
    assert len(r["stdout"].encode()) < LIMIT + 300
    assert r["dropped_bytes"] >= 200003 - LIMIT
    parts = r["stdout"].rstrip(BAD)
    assert parts.startswith(text * 100)


def test_characters_split_by_writes(server, shared):
    r = server.sh(shared, r"for i in 1 2 3; do printf '\344'; sleep 0.05; printf '\270'; sleep 0.05; printf '\255'; done")
    assert r == "中中中"


def test_output_so_far_ends_on_a_whole_character(server, shared):
    r = server.ok("exec", sandbox=shared, command=r"printf 'x\344\270'; sleep 1.5; printf '\255\n'", wait=0.5)
    assert r["status"] == "running" and r["stdout"] == "x"
    assert server.job_end(r["job_id"])["log_tail"] == "x中\n"


def test_names_with_any_bytes_round_trip(server, box):
    server.sh(box, r"printf one > $(printf 'n\377m')")
    names = [e["name"] for e in server.ok("list_files", sandbox=box)["entries"]]
    assert len(names) == 1
    json.dumps(names[0])
    assert server.ok("read_text", sandbox=box, path=names[0])["content"] == "one"


def test_job_logs_are_bounded(make_server):
    s = make_server(SMCP_JOB_LOG_MAX_BYTES="1m")
    r = s.ok("run_background", sandbox="b", command="seq 1000000; echo LAST")
    end = s.job_end(r["job_id"])
    full = "".join(f"{i}\n" for i in range(1, 1000001)) + "LAST\n"
    assert end["exit_code"] == 0 and end["log_bytes"] == len(full)
    assert end["log_tail"].endswith("1000000\nLAST\n")
    files = [f for f in s.data_dir.glob(".runs/*/*.log")]
    assert len(files) == 1 and files[0].stat().st_size < (1 << 20) + 4096
    first = s.ok("get_job", job_id=r["job_id"], offset=0, wait=0)
    assert full.startswith(first["log_tail"]) and len(first["log_tail"]) > 10000
    # behind the head that is kept lies a gap: said so, and counted
    gap = s.ok("get_job", job_id=r["job_id"], offset=len(full) // 2, wait=0)
    assert gap["dropped_bytes"] > 0
    at = gap["next_offset"] - len(gap["log_tail"])
    assert at == len(full) // 2 + gap["dropped_bytes"]
    assert full[at:gap["next_offset"]] == gap["log_tail"]
    # all that is read piece by piece: what is kept, and no byte twice
    offset, kept, dropped = 0, 0, 0
    while offset < len(full):
        part = s.ok("get_job", job_id=r["job_id"], offset=offset, wait=0)
        dropped += part.get("dropped_bytes", 0)
        start = offset + part.get("dropped_bytes", 0)
        assert full[start:part["next_offset"]] == part["log_tail"]
        kept += len(part["log_tail"])
        assert part["next_offset"] > offset
        offset = part["next_offset"]
    assert kept + dropped == len(full) and kept == 1 << 20


def test_a_limit_of_output_is_a_setting(make_server):
    s = make_server(SMCP_MAX_OUTPUT=1000)
    r = s.ok("exec", sandbox="b", command="seq 1000")
    assert r["dropped_bytes"] == check_cut(r["stdout"], "".join(f"{i}\n" for i in range(1, 1001)), 1000)
