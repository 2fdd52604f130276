"""The Inspector's command line: inspector.py http|stdio SANDBOX legacy|auto|modern

Each call is a process of its own. It shows no progress and cancels only by ending.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

CONFIG = json.loads(Path(os.environ["CLIENTS_CONFIG"]).read_text())
WIRE, SANDBOX, ERA = sys.argv[1:4]
PROGRAM = [CONFIG["node"], CONFIG["inspector"], "--cli", "--protocol-era", ERA, "--format", "json", "--quiet"]


def command(*arguments):
    if WIRE == "http":
        return [*PROGRAM, CONFIG["url"], "--transport", "http", "--header", f"Authorization: Bearer {CONFIG['token']}",
                *arguments]
    return [*PROGRAM, CONFIG["command"][0], *arguments, "--", *CONFIG["command"][1:]]


def start(*arguments):
    return subprocess.Popen(command(*arguments), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def run(*arguments):
    p = start(*arguments)
    out, err = p.communicate(timeout=60)
    return p.returncode, out, err


def tool(name, **arguments):
    rc, out, err = run("--method", "tools/call", "--tool-name", name, "--tool-args-json", json.dumps(arguments))
    assert out, f"exit {rc}: {err}"
    r = json.loads(out)
    return r.get("result", r)


def exists(name):
    return (Path(CONFIG["data"]) / SANDBOX / "workspace" / name).exists()


def until(condition, seconds, what):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)


def list_strict():
    """--strict ends with 6 when a schema is an error for some host."""
    rc, out, err = run("--method", "tools/list", "--strict")
    assert rc == 0, f"exit {rc}: {err}"
    r = json.loads(out)
    names = [t["name"] for t in r.get("result", r)["tools"]]
    assert {"exec", "run_background", "get_job", "stop_job"} <= set(names), names


def exec_():
    r = tool("exec", sandbox=SANDBOX, command="echo out; echo err >&2; exit 3")
    got = r["structuredContent"]
    assert (got["exit_code"], got["stdout"], got["stderr"]) == (3, "out\n", "err\n"), r
    assert json.loads(r["content"][0]["text"]) == got


def job():
    job_id = tool("run_background", sandbox=SANDBOX, command="sleep 1; echo done; exit 4")["structuredContent"]["job_id"]
    got = tool("get_job", job_id=job_id, wait=20)["structuredContent"]
    assert (got["status"], got["exit_code"], got["log_tail"]) == ("finished", 4, "done\n"), got


def cancel():
    """In the modern era a client that goes away takes its command with it; before, it does not."""
    command = "sh -c 'sleep 3; touch child' & touch started; sleep 3; touch done; wait"
    p = start("--method", "tools/call", "--tool-name", "exec", "--tool-args-json",
              json.dumps({"sandbox": SANDBOX, "command": command}))
    until(lambda: exists("started"), 15, "the command runs")
    started = time.monotonic()
    p.send_signal(signal.SIGINT)
    p.communicate(timeout=20)
    if ERA == "legacy":
        until(lambda: exists("child") and exists("done"), 10, "the command goes on")
        return
    time.sleep(max(0, started + 3.5 - time.monotonic()))
    assert not exists("child") and not exists("done"), "the command went on"


def bad_argument():
    r = tool("exec", sandbox="a b", command="true")
    assert r["isError"] and "structuredContent" not in r and "sandbox" in r["content"][0]["text"], r


def unknown_tool():
    rc, out, err = run("--method", "tools/call", "--tool-name", "exex", "--tool-args-json", "{}")
    assert rc != 0 and "exex" in err, f"exit {rc}: {out} {err}"


CASES = [("list", list_strict), ("exec", exec_), ("job", job), ("cancel exec", cancel), ("bad argument", bad_argument),
         ("unknown tool", unknown_tool)]
if WIRE == "stdio":
    CASES = [c for c in CASES if c[1] is not cancel]

failed = 0
for name, case in CASES:
    since = time.monotonic()
    try:
        case()
        print(f"ok {name} ({(time.monotonic() - since) * 1000:.0f} ms)", flush=True)
    except Exception as e:
        failed += 1
        text = re.sub(r"\s+", " ", f"{type(e).__name__}: {e}")[:600]
        print(f"FAIL {name}: {text}", flush=True)
sys.exit(1 if failed else 0)
