"""Starts one server, runs every client against it over HTTP and stdio, then the conformance suite.

Called by tests/clients/run, which installs what PYTHON, PYTHON_1, NODE and MODULES name. One line a case; the last
line is "N passed, N failed".
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "integration"))
from server import BUILD, META, MODERN, TOKEN, Server, clean_env, wait_for  # noqa: E402

NODE, PYTHON, PYTHON_1, MODULES = (os.environ[k] for k in ("NODE", "PYTHON", "PYTHON_1", "MODULES"))
SECONDS = 150  # for one client

# name, command, cases that it has at least
CLIENTS = [
    (f"{name} {wire}{' ' + how if how else ''}", [*program, wire, re.sub(r"\W", "-", f"{name}-{wire}-{how}"), how], cases)
    for name, program, hows, cases in (
        ("typescript-1", [NODE, "sdk1.mjs"], ("",), 9),
        ("typescript-2", [NODE, "sdk2.mjs"], ("auto", "pinned", "legacy"), 9),
        ("python-1", [PYTHON_1, "python_sdk.py"], ("legacy",), 9),
        ("python-2", [PYTHON, "python_sdk.py"], ("auto", "2026-07-28", "legacy"), 9),
        ("inspector", [PYTHON, "inspector.py"], ("legacy", "auto", "modern"), 5),
    )
    for wire in ("http", "stdio")
    for how in hows
]

# What is run of the conformance suite: name, arguments, file of expected failures.
CONFORMANCE = [
    ("2026-07-28", ["--requirements", "2026-07-28"], "expected-2026-07-28.yml"),
    ("2025-11-25", ["--requirements", "2025-11-25"], "expected-2025-11-25.yml"),
    ("2025-06-18", ["--suite", "active", "--spec-version", "2025-06-18"], "expected-2025-11-25.yml"),
]


class Count:
    def __init__(self):
        self.passed = self.failed = 0
        self.lock = threading.Lock()

    def line(self, good, text):
        with self.lock:
            self.passed += bool(good)
            self.failed += not good
            print(f"{'ok  ' if good else 'FAIL'} {text}", flush=True)


running = set()


def interrupted(*_):
    for p in list(running):
        p.kill()
    sys.exit(143)


def run_client(count, config, work, name, argv, cases):
    env = clean_env(CLIENTS_CONFIG=config, HOME=work)
    p = subprocess.Popen([a for a in argv if a], cwd=work, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    running.add(p)
    late = threading.Timer(SECONDS, p.kill)
    late.start()
    out, err = p.communicate()
    late.cancel()
    running.discard(p)
    seen = re.findall(r"^(ok|FAIL) (.*)$", out, re.M)
    for verdict, text in seen:
        count.line(verdict == "ok", f"{name}: {text}")
    broken = p.returncode != 0 and all(v == "ok" for v, _ in seen)
    if broken or len(seen) < cases:
        count.line(False, f"{name}: ended with {p.returncode} after {len(seen)} of {cases} cases: {(err or out)[-1500:]}")


def old_revisions(count, server):
    """A whole conversation of each revision that the suite does not know, as their clients sent it."""
    def post(message, version):
        r = server.post(message, {"MCP-Protocol-Version": version})
        return r.status, json.loads(r.body) if r.body else None

    def request(method, params, id):
        return {"jsonrpc": "2.0", "id": id, "method": method, "params": params}

    for revision, header in (("2024-11-05", None), ("2025-03-26", None), ("2025-06-18", "2025-06-18")):
        problem = None
        try:
            client = {"protocolVersion": revision, "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
            status, answer = post(request("initialize", client, 0), None)
            assert status == 200 and answer["result"]["protocolVersion"] == revision, answer
            assert post({"jsonrpc": "2.0", "method": "notifications/initialized"}, header) == (202, None)
            assert "exec" in [t["name"] for t in post(request("tools/list", {}, 1), header)[1]["result"]["tools"]]
            arguments = {"sandbox": "raw", "command": "echo hi"}
            call = request("tools/call", {"name": "exec", "arguments": arguments}, "two")
            status, answer = post(call, header)
            assert (status, answer["id"]) == (200, "two") and '"hi\\n"' in answer["result"]["content"][0]["text"], answer
            status, answer = post([request("ping", {}, 3), call], header)
            if revision == "2025-06-18":
                assert status == 400, "a batch after 2025-03-26"
            else:
                assert {a["id"] for a in answer} == {3, "two"}, answer
        except (AssertionError, KeyError, TypeError, ValueError) as e:
            problem = f"{type(e).__name__}: {e}"
        count.line(not problem, f"raw http {revision}: conversation{': ' + problem if problem else ''}")


def leaving_cancels(count, server):
    """One packet, no progress token, gone: of such a client lighttpd tells nothing before the answer has begun."""
    meta = {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}
    command = "touch left-started; sleep 3; touch left-done"
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "exec", "arguments": {"sandbox": "raw", "command": command}, "_meta": meta}})
    head = (f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {TOKEN}\r\n"
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            f"MCP-Protocol-Version: {MODERN}\r\nMcp-Method: tools/call\r\nMcp-Name: exec\r\n"
            f"Content-Length: {len(body)}\r\n\r\n")
    started, done = (server.workspace("raw") / f"left-{word}" for word in ("started", "done"))
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall((head + body).encode())
        wait_for(started.exists, 20, "the command runs")
    time.sleep(3.5)
    count.line(not done.exists(), f"raw http {MODERN}: leaving cancels")


def serve_fixtures(server):
    """The same instance goes on with the responder that has the suite's fixtures."""
    server.end("responder")
    server.spawn("responder", [
        BUILD / "sandbox-mcp-conformance", "--env-file", server.env_file,
        "--listen", server.run_dir / "fcgi/sandbox-mcp.sock", "--socket-group", "www-data"],
        LIBFCGI_OS_CLOSE_POLL_TIMEOUT=100)
    server.wait_healthy()


def expected_failures(path):
    """scenario -> its checks that may fail; the form is the suite's own."""
    found = {}
    for scenario, check in re.findall(r"^\s*- ([^\s:]+):(\S+)", path.read_text(), re.M):
        found.setdefault(scenario, set()).add(check)
    return found


def conformance(count, work, port, name, arguments, expected_file):
    """Also what the suite runs and does not score is judged, in the same way: a failure has to be expected."""
    expected = expected_failures(HERE / expected_file)
    out = Path(work) / f"conformance-{name}"
    p = subprocess.run(
        [NODE, f"{MODULES}/@modelcontextprotocol/conformance/dist/index.js", "server",
         "--url", f"http://127.0.0.1:{port}/mcp", *arguments, "--expected-failures", HERE / expected_file, "-o", out],
        cwd=work, env=clean_env(HOME=work, NO_COLOR=1), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=SECONDS)
    failures = n = 0
    for file in sorted(out.glob("server-*/checks.json"), key=lambda f: f.stat().st_mtime_ns):
        scenario = re.sub(r"^server-(.*)-\d{4}-\d\d-\d\dT.*", r"\1", file.parent.name)
        checks = json.loads(file.read_text())
        bad = {c["id"]: c.get("errorMessage") or c["description"] for c in checks if c["status"] == "FAILURE"}
        may = expected.get(scenario, set())
        present = {c["id"] for c in checks if c["status"] not in ("WARNING", "SKIPPED")}
        problems = [f"{id}: {why}" for id, why in bad.items() if id not in may]
        problems += [f"{id} passes: take it out of {expected_file}" for id in may & present - set(bad)]
        passed = sum(c["status"] == "SUCCESS" for c in checks)
        text = f"conformance {name}: {scenario} ({passed} passed{f', {len(bad)} failed' if bad else ''})"
        note = "; ".join(problems)[:1500] if problems else "as expected" if bad else ""
        count.line(not problems, f"{text} {note}".rstrip())
        failures += bool(problems)
        n += 1
    if n < 20 or (p.returncode and not failures):
        summary = p.stdout.partition("=== SUMMARY ===")[2]
        count.line(False, f"conformance {name}: {n} scenarios, exit {p.returncode}\n{summary[-2000:]}{p.stderr[-2000:]}")


def run_conformance(count, server, work):
    proxy = subprocess.Popen([NODE, "proxy.mjs", f"http://127.0.0.1:{server.port}", TOKEN], cwd=work,
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    try:
        port = int(proxy.stdout.readline())
        for row in CONFORMANCE:
            conformance(count, work, port, *row)
    finally:
        proxy.terminate()
        proxy.wait()


def main():
    count = Count()
    since = time.monotonic()
    work = tempfile.mkdtemp(prefix="smcp-clients-")
    for name in os.listdir(HERE):
        if name.endswith((".mjs", ".py")):
            shutil.copy(HERE / name, work)
    os.symlink(MODULES, f"{work}/node_modules")
    server = Server()
    try:
        server.start()
        config = f"{work}/config.json"
        Path(config).write_text(json.dumps({
            "url": f"http://127.0.0.1:{server.port}/mcp", "token": TOKEN, "data": str(server.data_dir),
            "command": [str(BUILD / "sandbox-mcp"), "--env-file", str(server.env_file), "--stdio"],
            "env": {"PATH": "/usr/bin:/bin"}, "node": NODE,
            "inspector": f"{MODULES}/@modelcontextprotocol/inspector/clients/launcher/build/index.js"}))
        only = sys.argv[1] if len(sys.argv) > 1 else ""
        with ThreadPoolExecutor(3) as pool:
            jobs = [pool.submit(run_client, count, config, work, *row) for row in CLIENTS if only in row[0]]
            try:
                for job in jobs:
                    job.result()
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        if only in "raw http":
            old_revisions(count, server)
            leaving_cancels(count, server)
        if only in "conformance":
            serve_fixtures(server)
            run_conformance(count, server, work)
    except Exception as e:
        count.line(False, f"{type(e).__name__}: {e}")
    finally:
        try:
            server.stop()
        except AssertionError as e:
            count.line(False, f"the server's end: {e}")
        shutil.rmtree(work, ignore_errors=True)
    print(f"{time.monotonic() - since:.0f} s")
    print(f"{count.passed} passed, {count.failed} failed")
    return 1 if count.failed or not count.passed else 0


signal.signal(signal.SIGTERM, interrupted)
sys.exit(main())
