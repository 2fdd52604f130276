"""The other faces of the responder: one tool from the shell, MCP on stdin and stdout, plain CGI."""

import json
import subprocess

import pytest

from server import BUILD, LEGACY, META, MODERN, TOKEN, clean_env, run, wait_for

RESPONDER = BUILD / "sandbox-mcp"


def call(server, *argv):
    return run(RESPONDER, "--env-file", server.env_file, "call", *argv, check=False, env=clean_env())


def test_call(server, box):
    p = call(server, "exec", json.dumps({"sandbox": box, "command": "echo out; exit 3"}))
    r = json.loads(p.stdout)
    assert (r["stdout"], r["exit_code"]) == ("out\n", 3) and p.returncode == 0
    p = call(server, "list_sandboxes")
    assert p.returncode == 0 and any(i["name"] == box for i in json.loads(p.stdout)["items"])


@pytest.mark.parametrize("argv,status,word", [
    (["no_such_tool"], 1, "no_such_tool"), (["exec", "{}"], 1, "command"), (["exec", "not json"], 1, "JSON"),
    (["exec", "[]"], 1, "object"), (["read_text", '{"sandbox":"never","path":"x"}'], 1, "never"), ([], 2, "usage"),
])
def test_call_fails_clearly(server, argv, status, word):
    p = call(server, *argv)
    assert p.returncode == status and word in p.stdout + p.stderr


def test_version_help_and_wrong_options(server):
    assert run(RESPONDER, "--version").stdout.startswith("sandbox-mcp ")
    shown = run(RESPONDER, "--help").stdout
    assert all(o in shown for o in ("--listen", "--stdio", "call", "--check-config", "--env-file"))
    for argv in (["--nonsense"], ["--env-file"], ["extra"]):
        p = run(RESPONDER, *argv, check=False)
        assert p.returncode == 2 and "--help" in p.stderr


class Stdio:
    def __init__(self, server):
        self.p = subprocess.Popen([str(RESPONDER), "--env-file", str(server.env_file), "--stdio"], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_env())

    def send(self, m):
        self.p.stdin.write((m if isinstance(m, str) else json.dumps(m)) + "\n")
        self.p.stdin.flush()

    def receive(self):
        return json.loads(self.p.stdout.readline())

    def ask(self, method, params=None, id=1):
        self.send({"jsonrpc": "2.0", "id": id, "method": method, **({"params": params} if params is not None else {})})
        answer = self.receive()
        assert answer["id"] == id
        return answer


@pytest.fixture
def stdio(server):
    s = Stdio(server)
    yield s
    if s.p.poll() is None:
        s.p.stdin.close()
        assert s.p.wait(10) == 0, "the end of stdin ends it"


def test_stdio_both_eras(stdio, box):
    r = stdio.ask("server/discover", {"_meta": {META + "protocolVersion": MODERN, META + "clientCapabilities": {}}}, "d")
    assert r["result"]["supportedVersions"] == [MODERN]
    r = stdio.ask("initialize", {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
    assert r["result"]["protocolVersion"] == LEGACY
    stdio.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert stdio.ask("ping")["result"] == {}
    r = stdio.ask("tools/call", {"name": "exec", "arguments": {"sandbox": box, "command": "echo over stdio"}}, 7)
    assert r["result"]["structuredContent"]["stdout"] == "over stdio\n"
    assert stdio.ask("no/such")["error"]["code"] == -32601


def test_stdio_bad_lines_do_not_end_it(stdio):
    for line, code in [("nonsense", -32700), ("{}", -32600), ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600)]:
        stdio.send(line)
        assert stdio.receive()["error"]["code"] == code
    stdio.send("")
    assert stdio.ask("ping")["result"] == {}


def test_stdio_answers_while_a_tool_runs(stdio, box):
    stdio.send({"jsonrpc": "2.0", "id": "slow", "method": "tools/call",
                "params": {"name": "exec", "arguments": {"sandbox": box, "command": "sleep 2; echo slow"}}})
    assert stdio.ask("ping", id="quick")["result"] == {}
    r = stdio.receive()
    assert r["id"] == "slow" and r["result"]["structuredContent"]["stdout"] == "slow\n"


def test_stdio_cancel(server, stdio, box):
    server.sh(box, "true")
    stdio.send({"jsonrpc": "2.0", "id": 5, "method": "tools/call",
                "params": {"name": "exec", "arguments": {"sandbox": box, "command": "touch on; sleep 3; touch PROOF"}}})
    wait_for(lambda: (server.workspace(box) / "on").exists(), 20, "it runs")
    stdio.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 5}})
    wait_for(lambda: server.processes(box) == [], 15, "the command is gone")
    assert not (server.workspace(box) / "PROOF").exists()
    assert stdio.ask("ping", id="after")["id"] == "after", "no answer to what was cancelled"


def test_stdio_ends_with_its_client_in_the_middle_of_a_call(server, box):
    s = Stdio(server)
    s.send({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
            "params": {"name": "exec", "arguments": {"sandbox": box, "command": "sleep 30", "wait": 60}}})
    s.p.stdin.close()
    assert s.p.wait(40) == 0


def cgi(server, body, **env):
    environ = clean_env(GATEWAY_INTERFACE="CGI/1.1", SERVER_PROTOCOL="HTTP/1.1", REQUEST_METHOD="POST", SCRIPT_NAME="/mcp",
                        CONTENT_TYPE="application/json", CONTENT_LENGTH=len(body), HTTP_HOST="127.0.0.1",
                        HTTP_AUTHORIZATION=f"Bearer {TOKEN}", SMCP_ENV_FILE=server.env_file, **env)
    p = subprocess.run([str(RESPONDER)], input=body, capture_output=True, text=True, env=environ, timeout=60)
    assert p.returncode == 0, p.stderr
    head, _, rest = p.stdout.replace("\r\n", "\n").partition("\n\n")
    headers = dict(line.split(": ", 1) for line in head.splitlines())
    return int(headers.get("Status", "200").split()[0]), headers, rest


def test_plain_cgi(server, box):
    m = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {
        "name": "exec", "arguments": {"sandbox": box, "command": "echo by cgi"}}}
    status, headers, body = cgi(server, json.dumps(m))
    assert status == 200 and headers["Content-Type"].startswith("application/json")
    assert json.loads(body)["result"]["structuredContent"]["stdout"] == "by cgi\n"
    assert cgi(server, "{")[0] == 400


def test_plain_cgi_wants_the_token(server):
    environ = clean_env(GATEWAY_INTERFACE="CGI/1.1", REQUEST_METHOD="POST", SCRIPT_NAME="/mcp", CONTENT_TYPE="application/json",
                        CONTENT_LENGTH="2", HTTP_HOST="127.0.0.1", HTTP_AUTHORIZATION="Bearer wrong",
                        SMCP_ENV_FILE=server.env_file)
    p = subprocess.run([str(RESPONDER)], input="{}", capture_output=True, text=True, env=environ, timeout=60)
    assert "401" in p.stdout.splitlines()[0]
