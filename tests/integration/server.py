"""One running instance of the product for the tests: lighttpd, responder, runner, real Docker.

Everything is black box: HTTP in front, the docker command behind, the files and the database
beside. Nothing here sleeps for a fixed time; wait_for polls a condition with a bound.
"""

import http.client
import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import tempfile
import threading
import time
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = (ROOT / os.environ.get("SMCP_BUILD", "build/debug")).resolve()
MINI = "sandbox-mcp-mini:latest"
BASE = "sandbox-mcp-base:latest"
TOKEN = "test-token-0123456789abcdef"
LEGACY = "2025-06-18"
MODERN = "2026-07-28"
META = "io.modelcontextprotocol/"

Response = namedtuple("Response", "status headers body")


def wait_for(condition, seconds, what):
    """Polls until condition() is true and returns its value."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(0.02)


def run(*argv, check=True, **kw):
    kw.setdefault("timeout", 120)
    kw.setdefault("stdin", subprocess.DEVNULL)
    p = subprocess.run([str(a) for a in argv], capture_output=True, text=True, **kw)
    if check and p.returncode != 0:
        raise AssertionError(f"{argv} ended with {p.returncode}:\n{p.stdout}\n{p.stderr}")
    return p


def docker(*argv, check=True):
    return run("docker", *argv, check=check).stdout.strip()


def parallel(n, function, *arguments):
    """function(i, *arguments) in n threads at once; the results in order."""
    gate = threading.Barrier(n)

    def one(i):
        gate.wait(60)
        return function(i, *arguments)

    with ThreadPoolExecutor(n) as pool:
        return list(pool.map(one, range(n)))


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def clean_env(**more):
    """The environment without settings of whoever runs the tests."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("SMCP_") or k.startswith("SMCP_TEST_")}
    env.update({k: str(v) for k, v in more.items()})
    return env


def peak_kb(pid):
    """Largest resident memory of a process since the last reset_peak, in KB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    raise AssertionError(f"process {pid} has no memory")


def sanitized():
    """The build under test carries a sanitizer, which keeps freed memory for a while."""
    return "libasan" in run("ldd", BUILD / "jobs-runner").stdout


def reset_peak(pid):
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def children(pid):
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] not in "ZX":
                found.append(int(entry.name))
    return found


class Server:
    """start() brings all three programs up; stop() ends them and removes this instance's containers."""

    def __init__(self, **settings):
        self.dir = Path(tempfile.mkdtemp(prefix="smcp-test-"))
        self.dir.chmod(0o711)
        self.port = free_port()
        self.run_dir = self.dir / "run"
        self.data_dir = self.dir / "data"
        self.state_db = self.dir / "state.db"
        self.env_file = self.dir / "env"
        self.settings = {
            "SMCP_TOKEN": TOKEN,
            "SMCP_PORT": self.port,
            "SMCP_PUBLIC_BASE_URL": f"http://127.0.0.1:{self.port}",
            "SMCP_DATA_DIR": self.data_dir,
            "SMCP_STATE_DB": self.state_db,
            "SMCP_RUN_DIR": self.run_dir,
            "SMCP_BASE_IMAGE": MINI,
            "SMCP_MAX_SANDBOXES": 60,
            "SMCP_LOG_LEVEL": 7,
        }
        self.settings.update(settings)
        self.programs = {}
        self.local = threading.local()

    # ---- processes ----

    def write_env(self):
        self.env_file.write_text("".join(f"{k}={v}\n" for k, v in self.settings.items()))
        self.env_file.chmod(0o600)

    def start(self, healthy=True):
        self.write_env()
        self.run_dir.mkdir(mode=0o711)
        self.run_dir.chmod(0o711)
        (self.run_dir / "fcgi").mkdir(mode=0o750)
        shutil.chown(self.run_dir / "fcgi", group="www-data")
        (self.run_dir / "fcgi").chmod(0o750)
        upload = self.dir / "upload"
        upload.mkdir(mode=0o700)
        shutil.chown(upload, "www-data", "www-data")
        self.start_runner()
        self.start_responder()
        body = self.settings.get("SMCP_TEST_BODY_KIB", 17 * 1024)
        self.spawn(
            "lighttpd",
            [shutil.which("lighttpd", path=os.environ["PATH"] + ":/usr/sbin:/sbin"), "-D",
             "-f", ROOT / "lighttpd/sandbox-mcp.conf"],
            SMCP_HOST="127.0.0.1", SMCP_PORT=self.port, SMCP_RUN_DIR=self.run_dir,
            LIGHTTPD_UPLOAD_DIR=upload, LIGHTTPD_MAX_BODY_KIB=body)
        if healthy:
            self.wait_healthy()
        return self

    def spawn(self, name, argv, **env):
        log = open(self.dir / f"{name}.log", "ab")
        self.programs[name] = subprocess.Popen(
            [str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=clean_env(**env), start_new_session=True, cwd="/")
        log.close()

    def start_runner(self):
        self.spawn("runner", [BUILD / "jobs-runner", "--env-file", self.env_file])
        wait_for(self.runner_listens, 30, "the runner opens its doorbell")

    def runner_listens(self):
        if self.programs["runner"].poll() is not None:
            raise AssertionError(f"the runner ended:\n{self.log('runner')[-3000:]}")
        try:
            os.close(os.open(self.run_dir / "doorbell", os.O_WRONLY | os.O_NONBLOCK))
            return True
        except OSError:
            return False

    def start_responder(self):
        self.spawn("responder", [
            BUILD / "sandbox-mcp", "--env-file", self.env_file,
            "--listen", self.run_dir / "fcgi/sandbox-mcp.sock", "--socket-group", "www-data"],
            LIBFCGI_OS_CLOSE_POLL_TIMEOUT=100)

    def health(self):
        try:
            r = self.http("GET", "/healthz", token=None, timeout=10)
            return r if r.status else None
        except (OSError, http.client.HTTPException):
            return None

    def wait_healthy(self, seconds=30):
        def healthy():
            for name, p in self.programs.items():
                if p.poll() is not None:
                    raise AssertionError(f"{name} ended with {p.returncode}:\n{self.log(name)[-3000:]}")
            r = self.health()
            return r and r.status == 200

        try:
            wait_for(healthy, seconds, "/healthz says ok")
        except AssertionError as e:
            r = self.health()
            raise AssertionError(f"{e}\n{r}\n{self.log('runner')[-2000:]}\n{self.log('responder')[-2000:]}") from None

    def log(self, name):
        path = self.dir / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def pid(self, name):
        return self.programs[name].pid

    def worker_pids(self):
        return children(self.pid("responder"))

    def end(self, name, sig=signal.SIGTERM, seconds=20):
        p = self.programs.pop(name)
        if p.poll() is None:
            p.send_signal(sig)
        try:
            return p.wait(seconds)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
            raise AssertionError(f"{name} did not end within {seconds} s of signal {sig}") from None

    def restart_runner(self, kill=True):
        self.end("runner", signal.SIGKILL if kill else signal.SIGTERM)
        self.start_runner()

    def stop(self):
        problems = []
        for name in ("lighttpd", "responder", "runner"):
            if name in self.programs:
                try:
                    rc = self.end(name)
                    if name != "lighttpd" and rc != 0:
                        problems.append(f"{name} ended with {rc}")
                except AssertionError as e:
                    problems.append(str(e))
        for name in ("runner", "responder", "lighttpd"):
            for line in self.log(name).splitlines():
                if "BUG " in line or "Sanitizer" in line or "runtime error" in line:
                    problems.append(f"{name}: {line}")
        self.remove_containers()
        if not problems:
            shutil.rmtree(self.dir, ignore_errors=True)
        assert not problems, "\n".join(problems + [f"the logs are in {self.dir}"])

    def remove_containers(self):
        if not self.state_db.exists():
            return
        ids = docker("ps", "-aq", "--filter", f"label=io.sandbox_mcp.instance={self.instance()}").split()
        if ids:
            docker("rm", "-f", *ids, check=False)

    # ---- beside and behind ----

    def sql(self, text, *parameters):
        db = sqlite3.connect(f"file:{self.state_db}?mode=ro", uri=True, timeout=10)
        try:
            return db.execute(text, parameters).fetchall()
        finally:
            db.close()

    def instance(self):
        return self.sql("select value from meta where key='instance'")[0][0]

    def containers(self, sandbox=None):
        """Ids of this instance's containers, stopped ones too."""
        argv = ["ps", "-aq", "--no-trunc", "--filter", f"label=io.sandbox_mcp.instance={self.instance()}"]
        if sandbox:
            argv += ["--filter", f"label=io.sandbox_mcp.name={sandbox}"]
        return docker(*argv).split()

    def container(self, sandbox):
        ids = self.containers(sandbox)
        assert len(ids) == 1, f"{sandbox} has {len(ids)} containers"
        return ids[0]

    def inspect(self, sandbox):
        return json.loads(docker("inspect", self.container(sandbox)))[0]

    def processes(self, sandbox):
        """Command lines of what runs in the sandbox, seen from the host; without the agent."""
        rows = docker("top", self.container(sandbox), "-eo", "pid,stat,args").splitlines()[1:]
        return [r.split(None, 2)[2] for r in rows if "sandbox-agent" not in r and r.split()[1][0] != "Z"]

    def workspace(self, sandbox):
        return self.data_dir / sandbox / "workspace"

    # ---- HTTP and MCP ----

    def http(self, method, path, body=None, headers=None, token=TOKEN, timeout=120):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            h = {}
            if token:
                h["Authorization"] = f"Bearer {token}"
            h.update(headers or {})
            if isinstance(body, str):
                body = body.encode()
            connection.request(method, path, body, h)
            r = connection.getresponse()
            return Response(r.status, r.headers, r.read())
        finally:
            connection.close()

    def post(self, body, headers=None, **kw):
        if not isinstance(body, (bytes, str)):
            body = json.dumps(body)
        h = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        h.update(headers or {})
        return self.http("POST", "/mcp", body, {k: v for k, v in h.items() if v is not None}, **kw)

    def rpc(self, method, params=None, id=1, version=LEGACY, **kw):
        """One legacy JSON-RPC request; the whole answer as an object."""
        message = {"jsonrpc": "2.0", "id": id, "method": method}
        if params is not None:
            message["params"] = params
        r = self.post(message, {"MCP-Protocol-Version": version}, **kw)
        assert r.status == 200, f"{method}: {r.status} {r.body[:500]}"
        answer = json.loads(r.body)
        assert answer["jsonrpc"] == "2.0" and answer["id"] == id
        return answer

    def call(self, tool, **arguments):
        """One tool: (result object, isError). Checks the form that every result has."""
        return self.call_raw(tool, arguments)

    def call_raw(self, tool, arguments):
        answer = self.rpc("tools/call", {"name": tool, "arguments": arguments}, timeout=330)
        assert "result" in answer, answer
        result = answer["result"]
        text = json.loads(result["content"][0]["text"])
        assert result["content"][0]["type"] == "text" and len(result["content"]) == 1
        if result.get("isError"):
            assert "structuredContent" not in result
            assert set(text) == {"error", "code", "fix"} and all(text.values()), text
            return text, True
        assert result["structuredContent"] == text
        return text, False

    def ok(self, tool, **arguments):
        result, is_error = self.call(tool, **arguments)
        assert not is_error, f"{tool} {arguments}: {result}"
        return result

    def fails(self, tool, **arguments):
        result, is_error = self.call(tool, **arguments)
        assert is_error, f"{tool} {arguments} did not fail: {result}"
        return result

    def sh(self, sandbox, command, **arguments):
        """exec whose command is expected to succeed; its stdout."""
        r = self.ok("exec", sandbox=sandbox, command=command, **arguments)
        assert r["exit_code"] == 0, r
        return r["stdout"]

    def job_end(self, job_id, seconds=60):
        """Waits for the end of a job; get_job's last answer."""
        end = time.monotonic() + seconds
        while True:
            r = self.ok("get_job", job_id=job_id, wait=10)
            if r["status"] not in ("running", "queued"):
                return r
            assert time.monotonic() < end, f"the job still runs after {seconds} s: {r}"

    def job_log(self, job_id):
        """The whole log of a job, read piece by piece by its offsets."""
        text, offset = "", 0
        while True:
            r = self.ok("get_job", job_id=job_id, offset=offset, wait=0)
            assert r["next_offset"] >= offset
            if r["next_offset"] == offset:
                return text
            text += r["log_tail"]
            offset = r["next_offset"]
