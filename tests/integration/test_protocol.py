"""The HTTP and JSON-RPC edge, both protocol eras on one address: one table row per rung and case."""

import http.client
import json
import socket

import pytest

from server import LEGACY, META, MODERN, TOKEN

CALL = {"name": "list_sandboxes", "arguments": {}}


def meta(version=MODERN, **more):
    return {META + "protocolVersion": version, META + "clientCapabilities": {}, **more}


def message(method, params=None, id=1):
    m = {"jsonrpc": "2.0", "method": method}
    if id is not None:
        m["id"] = id
    if params is not None:
        m["params"] = params
    return m


def modern(server, method, params=None, id=1, headers=None, version=MODERN, meta_version=None, with_meta=True, **kw):
    params = dict(params or {})
    if with_meta:
        params["_meta"] = meta(meta_version or version)
    h = {"MCP-Protocol-Version": version, "Mcp-Method": method}
    if "name" in params:
        h["Mcp-Name"] = params["name"]
    h.update(headers or {})
    return server.post(message(method, params, id), h, **kw)


def error_of(response, id=1):
    body = json.loads(response.body)
    assert body["jsonrpc"] == "2.0" and "result" not in body
    if id is not None:
        assert body["id"] == id
    assert body["error"]["message"]
    return body["error"]["code"]


# ---- rungs 1 to 6: HTTP ----

@pytest.mark.parametrize("path,status", [
    ("/mcp", 200), ("/mcpx", 404), ("/mcp/x", 404), ("/mcp/", 404), ("/", 404), ("/nothing", 404), ("/MCP", 404),
    ("/healthzz", 404), ("/.well-known/oauth-protected-resource", 404),
])
def test_paths(server, path, status):
    r = server.http("POST", path, json.dumps(message("ping")), {"Content-Type": "application/json"})
    assert r.status == status


@pytest.mark.parametrize("origin,status", [
    (None, 200),
    ("http://localhost", 200), ("http://localhost:3000", 200), ("https://127.0.0.1:8443", 200), ("http://[::1]:5", 200),
    ("https://evil.example", 403), ("null", 403), ("http://localhost.evil.example", 403),
    ("http://localhost@evil.example", 403), ("http://127.0.0.1.evil.example", 403), ("file://", 403),
])
def test_origin(server, origin, status):
    r = server.post(message("ping"), {"Origin": origin})
    assert r.status == status
    if origin and status == 200:
        assert r.headers["Access-Control-Allow-Origin"] == origin
        assert "Origin" in r.headers["Vary"]
    else:
        assert "Access-Control-Allow-Origin" not in r.headers


@pytest.mark.parametrize("host,status", [
    ("127.0.0.1:{port}", 200), ("localhost:{port}", 200), ("localhost", 200), ("[::1]:{port}", 200),
    ("evil.example", 403), ("evil.example:{port}", 403), ("127.0.0.1.evil.example", 403),
])
def test_host(server, host, status):
    """The Host counts when a browser asks (it sends an Origin): that stops DNS rebinding. Other
    clients have the token, and proxies in front may send any Host."""
    host = host.format(port=server.port)
    assert server.post(message("ping"), {"Host": host, "Origin": "http://localhost"}).status == status
    assert server.post(message("ping"), {"Host": host}).status == 200


@pytest.mark.parametrize("authorization,status", [
    (f"Bearer {TOKEN}", 200), (f"bearer {TOKEN}", 200), (f"BEARER  {TOKEN}", 200), (f"Bearer {TOKEN} ", 200),
    (None, 401), ("", 401), ("Bearer", 401), ("Bearer ", 401), (f"Bearer {TOKEN}x", 401), (f"Bearer {TOKEN[:-1]}", 401),
    (f"Basic {TOKEN}", 401), (TOKEN, 401), (f"Bearer {TOKEN.upper()}", 401), (f"Bearer x, Bearer {TOKEN}", 401),
])
def test_token(server, authorization, status):
    r = server.post(message("ping"), {"Authorization": authorization}, token=None)
    assert r.status == status
    if status == 401:
        assert r.headers["WWW-Authenticate"].startswith("Bearer")
        assert TOKEN.encode() not in r.body


def test_no_token_in_the_query(server):
    for q in (f"?token={TOKEN}", f"?access_token={TOKEN}"):
        r = server.http("POST", "/mcp" + q, json.dumps(message("ping")), {"Content-Type": "application/json"}, token=None)
        assert r.status == 401


@pytest.mark.parametrize("method", ["GET", "DELETE", "PUT", "PATCH", "HEAD"])
def test_methods(server, method):
    r = server.http(method, "/mcp", None, {"Accept": "text/event-stream"})
    assert r.status == 405 and "POST" in r.headers["Allow"]
    if method != "HEAD":
        assert server.http(method, "/mcp", None, token=None).status == 401, "the token comes first"


def test_preflight(server):
    ask = {"Access-Control-Request-Method": "POST",
           "Access-Control-Request-Headers": "authorization,content-type,mcp-protocol-version,mcp-param-x"}
    r = server.http("OPTIONS", "/mcp", None, {"Origin": "http://localhost:1234", **ask}, token=None)
    assert r.status == 204 and r.body == b""
    assert r.headers["Access-Control-Allow-Origin"] == "http://localhost:1234"
    assert "POST" in r.headers["Access-Control-Allow-Methods"]
    allowed = {h.strip().lower() for h in r.headers["Access-Control-Allow-Headers"].split(",")}
    assert allowed >= {"content-type", "accept", "authorization", "mcp-protocol-version", "mcp-method", "mcp-name",
                       "mcp-session-id", "last-event-id", "mcp-param-x"}
    r = server.http("OPTIONS", "/mcp", None, {"Origin": "https://evil.example", **ask}, token=None)
    assert r.status in (403, 405) and "Access-Control-Allow-Origin" not in r.headers


@pytest.mark.parametrize("content_type,status", [
    ("application/json", 200), ("application/json; charset=utf-8", 200), ("APPLICATION/JSON", 200),
    ("application/json;charset=utf-8", 200),
    ("text/plain", 415), ("application/x-www-form-urlencoded", 415), ("application/jsonx", 415), (None, 415),
    ("multipart/form-data; boundary=x", 415),
])
def test_content_type(server, content_type, status):
    assert server.post(message("ping"), {"Content-Type": content_type}).status == status


@pytest.mark.parametrize("accept,kind", [
    (None, "application/json"), ("*/*", "application/json"), ("application/json", "application/json"),
    ("application/json, text/event-stream", "application/json"), ("application/*;q=0.5", "application/json"),
    ("TEXT/EVENT-STREAM, APPLICATION/JSON", "application/json"), ("text/html", "application/json"),
    ("text/event-stream", "text/event-stream"), ("Text/Event-Stream", "text/event-stream"),
])
def test_accept_is_never_refused(server, accept, kind):
    r = server.post(message("tools/call", CALL), {"Accept": accept})
    assert r.status == 200
    assert r.headers["Content-Type"].split(";")[0] == kind
    body = r.body.decode()
    if kind == "text/event-stream":
        data = [line[5:].strip() for line in body.splitlines() if line.startswith("data:")]
        assert len(data) == 1 and not any(line.startswith(("id:", "retry:")) for line in body.splitlines())
        body = data[0]
    else:
        assert int(r.headers["Content-Length"]) == len(r.body)
    assert json.loads(body)["result"]["isError"] is False
    assert "no-store" in r.headers["Cache-Control"]


def test_accept_in_two_header_lines(server):
    c = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    body = json.dumps(message("ping"))
    c.putrequest("POST", "/mcp")
    for k, v in [("Authorization", f"Bearer {TOKEN}"), ("Content-Type", "application/json"), ("Accept", "application/json"),
                 ("Accept", "text/event-stream"), ("Content-Length", str(len(body)))]:
        c.putheader(k, v)
    c.endheaders(body.encode())
    r = c.getresponse()
    assert r.status == 200 and json.loads(r.read())["result"] == {}
    c.close()


def test_body_sizes(make_server):
    s = make_server(SMCP_MAX_BODY_BYTES="64k")
    pad = "x" * 60000
    assert s.post(message("ping", {"pad": pad})).status == 200
    r = s.post(message("ping", {"pad": "x" * 70000}))
    assert r.status == 413
    assert s.post(message("ping")).status == 200


def test_a_chunked_body(server):
    body = json.dumps(message("ping")).encode()
    r = server.http("POST", "/mcp", iter([body[:10], body[10:]]), {"Content-Type": "application/json"})
    assert r.status in (200, 411)  # the web server may want a length
    if r.status == 200:
        assert json.loads(r.body)["result"] == {}


# ---- rungs 7 to 9: the envelope ----

@pytest.mark.parametrize("body,code", [
    ("", -32700), ("{", -32700), ("nonsense", -32700), ("{}x", -32700), (b"\xff\xfe{}", -32700), ('{"a":"\\u0000"}', -32700),
    ('{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', -32700),
    ('{"jsonrpc":"2.0","id":1,"method":"ping","params":' + "[" * 100 + "]" * 100 + "}", -32700),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"\xed\xa0\x80"}}', -32700),
    ('"text"', -32600), ("5", -32600), ("null", -32600), ("true", -32600), ("{}", -32600), ("[]", -32600),
    ('{"id":1,"method":"ping"}', -32600),
    ('{"jsonrpc":"1.0","id":1,"method":"ping"}', -32600),
    ('{"jsonrpc":2.0,"id":1,"method":"ping"}', -32600),
    ('{"jsonrpc":"2.0","id":null,"method":"ping"}', -32600),
    ('{"jsonrpc":"2.0","id":1.5,"method":"ping"}', -32600),
    ('{"jsonrpc":"2.0","id":true,"method":"ping"}', -32600),
    ('{"jsonrpc":"2.0","id":{},"method":"ping"}', -32600),
    ('{"jsonrpc":"2.0","id":[],"method":"ping"}', -32600),
    ('{"jsonrpc":"2.0","id":1,"method":5}', -32600),
    ('{"jsonrpc":"2.0","id":1}', -32600),
])
def test_what_is_no_message(server, body, code):
    r = server.post(body)
    assert r.status == 400
    assert error_of(r, id=None) == code
    assert server.rpc("ping")["result"] == {}


@pytest.mark.parametrize("raw", ['1', '0', '-5', '"x"', '""', '"1"', '9007199254740991', '"' + "i" * 500 + '"', '"é\\n"'])
def test_the_id_comes_back_verbatim(server, raw):
    for method in ("ping", "no/such"):
        r = server.post(f'{{"jsonrpc":"2.0","method":"{method}","id":{raw}}}')
        assert r.status == 200
        assert json.loads(r.body)["id"] == json.loads(raw)
        assert type(json.loads(r.body)["id"]) is type(json.loads(raw))


@pytest.mark.parametrize("m", [
    message("notifications/initialized", id=None), message("notifications/cancelled", {"requestId": 1}, id=None),
    message("notifications/anything", id=None), message("ping", id=None),
    {"jsonrpc": "2.0", "id": 1, "result": {}}, {"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "x"}},
])
def test_one_way_messages(server, m):
    r = server.post(m)
    assert r.status == 202 and r.body == b"" and "Content-Type" not in r.headers
    if "method" in m:
        m = {**m, "params": {**m.get("params", {}), "_meta": meta()}}
        r = server.post(m, {"MCP-Protocol-Version": MODERN, "Mcp-Method": m["method"]})
        assert r.status == 202 and r.body == b""
    else:
        assert server.post(m, {"MCP-Protocol-Version": MODERN}).status == 400


def test_batches(server):
    def post(body, version="2025-03-26"):
        return server.post(body, {"MCP-Protocol-Version": version})

    r = post([message("ping", id=1), message("notifications/x", id=None), message("no/such", id="two"),
              message("tools/call", CALL, id=3)])
    assert r.status == 200
    answers = {a["id"]: a for a in json.loads(r.body)}
    assert set(answers) == {1, "two", 3}
    assert answers[1]["result"] == {} and answers["two"]["error"]["code"] == -32601
    assert answers[3]["result"]["isError"] is False
    assert server.post([message("ping")], {"MCP-Protocol-Version": None}).status == 200
    assert post([message("notifications/x", id=None)]).status == 202
    for version in ("2025-06-18", "2025-11-25", MODERN):
        r = post([message("ping")], version)
        assert r.status == 400 and error_of(r, None) == -32600
    r = server.post([message("tools/list", {"_meta": meta()})])
    assert r.status == 400
    assert post([message("ping", id=i) for i in range(200)]).status == 400, "a batch is bounded"
    bad = json.loads(post([message("initialize", {"protocolVersion": LEGACY}), 5]).body)
    assert all("error" in a for a in (bad if isinstance(bad, list) else [bad]))


# ---- rungs 10 to 14: modern only ----

@pytest.mark.parametrize("kw,status,code", [
    (dict(with_meta=False), 400, -32602),
    (dict(meta_version="v999"), 400, -32020),
    (dict(version="v999.0.0"), 400, -32022),
    (dict(version="2027-01-01"), 400, -32022),
    (dict(version="2025-11-25"), 400, -32022),
    (dict(headers={"MCP-Protocol-Version": None}), 400, -32020),
    (dict(headers={"Mcp-Method": None}), 400, -32020),
    (dict(headers={"Mcp-Method": "tools/list"}), 400, -32020),
    (dict(headers={"Mcp-Method": "Tools/Call"}), 400, -32020),
    (dict(headers={"Mcp-Name": None}), 400, -32020),
    (dict(headers={"Mcp-Name": "exec"}), 400, -32020),
    (dict(headers={"Mcp-Name": "=?base64?bGlzdF9zYW5kYm94ZXM=?="}), 200, None),
    (dict(headers={"Mcp-Name": "=?base64?bGlzdF9zYW5kYm94ZXM?="}), 400, -32020),
    (dict(headers={"Mcp-Name": "=?base64?!!!!?="}), 400, -32020),
    (dict(headers={"Mcp-Param-Anything": "x"}), 200, None),
    (dict(), 200, None),
])
def test_modern_rungs(server, kw, status, code):
    r = modern(server, "tools/call", CALL, **kw)
    assert r.status == status
    if code is None:
        assert json.loads(r.body)["result"]["resultType"] == "complete"
    else:
        assert error_of(r) == code


def test_unsupported_version_says_what_is(server):
    e = json.loads(modern(server, "tools/list", version="2027-01-01").body)["error"]
    assert e["data"] == {"supported": [MODERN], "requested": "2027-01-01"}


@pytest.mark.parametrize("caps", [None, [], "x", 5])
def test_capabilities_must_be_an_object(server, caps):
    m = meta()
    if caps is None:
        del m[META + "clientCapabilities"]
    else:
        m[META + "clientCapabilities"] = caps
    r = server.post(message("tools/list", {"_meta": m}), {"MCP-Protocol-Version": MODERN, "Mcp-Method": "tools/list"})
    assert r.status == 400 and error_of(r) == -32602


# ---- rungs 15 to 20: methods and parameters ----

@pytest.mark.parametrize("method,in_legacy,in_modern", [
    ("ping", True, False), ("initialize", True, False), ("server/discover", False, True), ("tools/list", True, True),
    ("resources/list", False, False), ("resources/templates/list", False, False), ("prompts/list", False, False),
    ("completion/complete", False, False), ("logging/setLevel", False, False), ("resources/subscribe", False, False),
    ("no/such", False, False), ("PING", False, False),
])
def test_methods_of_both_eras(server, method, in_legacy, in_modern):
    r = server.post(message(method, {}))
    assert r.status == 200, "a legacy client sees errors only in a 200"
    assert ("result" in json.loads(r.body)) == in_legacy
    if not in_legacy:
        assert error_of(r) == -32601
    r = modern(server, method)
    assert r.status == (200 if in_modern else 404)
    if not in_modern:
        assert error_of(r) == -32601


@pytest.mark.parametrize("asked,answered", [
    ("2025-11-25", "2025-11-25"), ("2025-06-18", "2025-06-18"), ("2025-03-26", "2025-03-26"), ("2024-11-05", "2024-11-05"),
    (MODERN, "2025-11-25"), ("2099-01-01", "2025-11-25"), ("", "2025-11-25"), ("garbage", "2025-11-25"), (5, "2025-11-25"),
])
def test_initialize_negotiates(server, asked, answered):
    params = {"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    for header in (None, LEGACY, MODERN, "nonsense"):
        r = server.post(message("initialize", params), {"MCP-Protocol-Version": header})
        assert r.status == 200
        result = json.loads(r.body)["result"]
        assert result["protocolVersion"] == answered
        assert result["capabilities"] == {"tools": {}}
        assert set(result["serverInfo"]) >= {"name", "version"}
        assert len(result["instructions"]) > 200
        assert "resultType" not in result and "Mcp-Session-Id" not in r.headers


def test_discover(server):
    result = json.loads(modern(server, "server/discover").body)["result"]
    assert result["resultType"] == "complete" and result["supportedVersions"] == [MODERN]
    assert result["capabilities"]["tools"] == {} and result["instructions"]
    assert isinstance(result["ttlMs"], int) and result["ttlMs"] >= 0 and result["cacheScope"] in ("public", "private")
    assert result["_meta"][META + "serverInfo"]["name"]


@pytest.mark.parametrize("version,status", [
    (None, 200), ("", 200), ("2024-11-05", 200), ("2025-03-26", 200), ("2025-06-18", 200), ("2025-11-25", 200),
    ("1999-01-01", 400), ("nonsense", 400),
])
def test_legacy_version_header(server, version, status):
    r = server.post(message("ping"), {"MCP-Protocol-Version": version})
    if version == "nonsense":  # compares above the modern version: then its rules hold
        assert r.status == 400
        return
    assert r.status == status


@pytest.mark.parametrize("headers", [
    {"Mcp-Session-Id": "stale"}, {"Last-Event-ID": "5"}, {"Mcp-Session-Id": "x" * 500},
])
def test_sessions_are_ignored(server, headers):
    assert server.post(message("tools/call", CALL), headers).status == 200
    r = server.post(message("initialize", {"protocolVersion": LEGACY}), headers)
    assert r.status == 200 and "Mcp-Session-Id" not in r.headers
    assert server.http("DELETE", "/mcp", None, headers).status == 405


@pytest.mark.parametrize("params,code", [
    (None, -32602), ({}, -32602), ({"name": 5}, -32602), ({"name": None}, -32602), ({"name": ""}, -32602),
    ({"name": "no_such_tool"}, -32602), ({"name": "EXEC", "arguments": {}}, -32602),
    ({"name": "exec", "arguments": []}, -32602), ({"name": "exec", "arguments": "x"}, -32602),
    ({"name": "exec", "arguments": 1}, -32602), ([], -32602), ("x", -32602),
])
def test_malformed_calls(server, params, code):
    m = message("tools/call")
    if params is not None:
        m["params"] = params
    r = server.post(m)
    assert r.status == 200 and error_of(r) == code


@pytest.mark.parametrize("arguments", [{}, None, "absent", {"unknown_is": None}])
def test_absent_null_and_empty_arguments_are_the_same(server, arguments):
    params = {"name": "list_sandboxes"}
    if arguments != "absent":
        params["arguments"] = arguments
    if arguments == {"unknown_is": None}:
        params = {"name": "list_files", "arguments": {"sandbox": "nowhere", "path": None, "recursive": None}}
    answer = server.rpc("tools/call", params)["result"]
    assert answer["isError"] is (arguments == {"unknown_is": None})


def test_missing_arguments_are_named(server):
    for arguments in ({}, None, {"sandbox": "x"}):
        r = server.rpc("tools/call", {"name": "exec", "arguments": arguments})["result"]
        assert r["isError"] is True
        e = json.loads(r["content"][0]["text"])
        assert "command" in e["error"] and "exec" in e["fix"]
    e = server.fails("exec", command="true", comand="x", sandbox="never")
    assert "comand" in e["error"]
    assert server.containers("never") == []


@pytest.mark.parametrize("timeout,good", [
    (30, True), ("30", True), (30.0, True), ("30.0", True), (0.5, True), (" 30 ", False), ("30s", False), ("", False),
    (-1, False), (0, False), (1e9, False), ("NaN", False), ("Infinity", False), ("0x10", False), ("1e1", None), (True, False),
    ([], False), ({}, False), ("ten", False),
])
def test_numbers(server, timeout, good):
    answer, is_error = server.call("exec", sandbox="numbers", command="echo ok", timeout=timeout)
    if good is None:
        return
    assert is_error is not good, answer
    if is_error:
        assert "timeout" in answer["error"]
    else:
        assert answer["stdout"] == "ok\n"


def test_a_number_beyond_all_bounds(server):
    r = server.post('{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"exec","arguments":'
                    '{"command":"true","timeout":1e400}}}')
    assert r.status == 400 and error_of(r, None) == -32700


@pytest.mark.parametrize("value,good", [
    (True, True), ("true", True), ("false", True), ("yes", False), (1, False), ("", False), ([], False),
])
def test_booleans(server, value, good):
    answer, is_error = server.call("list_files", sandbox="numbers", recursive=value)
    if is_error and answer["code"] == "not_found":
        assert good
    else:
        assert is_error is not good


def test_numbers_end(server):
    server.call("destroy_sandbox", sandbox="numbers", delete_files=True)


def test_ends_of_commands_are_results_and_failures_are_errors(server, box):
    r = server.rpc("tools/call", {"name": "exec", "arguments": {"sandbox": box, "command": "false"}})["result"]
    assert r["isError"] is False and r["structuredContent"]["exit_code"] == 1
    e = server.fails("read_text", sandbox=box, path="none")
    assert e["code"] == "not_found"


def test_modern_results(server):
    r = json.loads(modern(server, "tools/call", CALL).body)["result"]
    assert r["resultType"] == "complete" and r["isError"] is False
    assert json.loads(r["content"][0]["text"]) == r["structuredContent"]
    assert r["_meta"][META + "serverInfo"]["version"]
    r = json.loads(modern(server, "tools/call", {"name": "exec", "arguments": {}}).body)["result"]
    assert r["isError"] is True and "structuredContent" not in r
    r = modern(server, "tools/call", {"name": "no_such_tool"})
    assert r.status == 200 and error_of(r) == -32602


CORE = ["exec", "run_background", "get_job", "stop_job", "list_sandboxes", "create_sandbox", "destroy_sandbox",
        "list_files", "read_text", "write_text"]


def test_tools_list(server):
    result = server.rpc("tools/list")["result"]
    assert "nextCursor" not in result and "resultType" not in result
    tools = {t["name"]: t for t in result["tools"]}
    assert set(tools) >= set(CORE) and len(tools) == len(result["tools"])
    for t in tools.values():
        assert set(t["annotations"]) >= {"readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint"}, t["name"]
        assert t["inputSchema"]["type"] == "object"
        assert t.get("outputSchema", {"type": "object"})["type"] == "object"
        assert 20 < len(t["description"]) and None not in t.values()
        for name, p in t["inputSchema"]["properties"].items():
            assert "type" in p, (t["name"], name)
    assert server.rpc("tools/list")["result"] == result, "the order is fixed"
    assert server.rpc("tools/list", {"cursor": ""})["result"] == result
    assert server.rpc("tools/list", {"cursor": "x"})["error"]["code"] == -32602
    core = json.dumps([tools[n] for n in CORE], ensure_ascii=False, separators=(",", ":"))
    assert len(core) < 10000, "the core set costs context in every conversation"
    m = json.loads(modern(server, "tools/list").body)["result"]
    assert m["tools"] == result["tools"]
    assert m["ttlMs"] >= 0 and m["cacheScope"] in ("public", "private") and m["resultType"] == "complete"


def test_toolsets(server):
    def post(query):
        r = server.http("POST", f"/mcp?{query}", json.dumps(message("tools/list")), {"Content-Type": "application/json"})
        return r.status, {t["name"] for t in json.loads(r.body).get("result", {}).get("tools", [])}


    assert set(CORE) <= post("toolsets=core")[1]
    status, names = post("toolsets=nonsense")
    assert status == 400 or not names
    r = server.http("POST", "/mcp?toolsets=files", json.dumps(message("tools/call", {"name": "exec", "arguments": {}})),
                    {"Content-Type": "application/json"})
    assert json.loads(r.body)["error"]["code"] == -32602, "what is not listed cannot be called"


def test_old_names_still_answer(server, box):
    server.sh(box, "echo x > f")
    assert server.ok("read_file", sandbox=box, path="f")["content"] == "x\n"
    server.ok("write_file", sandbox=box, path="g", content="y")
    assert any(i["name"] == box for i in server.ok("list_all")["items"])
    job = server.ok("bg", sandbox=box, command="echo j")["job_id"]
    server.job_end(job)
    listed = {t["name"] for t in server.rpc("tools/list")["result"]["tools"]}
    assert not listed & {"read_file", "write_file", "list_all", "bg", "logs", "kill", "destroy"}
    assert server.ok("destroy", sandbox=box, delete_files=True)["destroyed"] is True


def test_healthz(server):
    r = server.http("GET", "/healthz", token=None)
    assert r.status == 200
    body = json.loads(r.body)
    assert body["ok"] is True
    assert TOKEN not in r.body.decode()
    assert server.http("POST", "/healthz", "x", token=None).status in (200, 405)


def test_a_client_that_sends_rubbish(server):
    for junk in (b"\x00\x01\x02\r\n\r\n", b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nab", b"GET"):
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as s:
            s.sendall(junk)
    assert server.rpc("ping")["result"] == {}


def test_large_headers(server):
    r = server.post(message("ping"), {"X-Large": "y" * 20000})
    assert r.status in (200, 400, 413, 431)
    assert server.rpc("ping")["result"] == {}


def test_progress(server, box):
    server.sh(box, "true")
    params = {"name": "exec", "arguments": {"sandbox": box, "command": "echo a; sleep 2; echo b"},
              "_meta": {"progressToken": "p1"}}
    r = server.post(message("tools/call", params), timeout=60)
    assert r.status == 200
    if r.headers["Content-Type"].startswith("text/event-stream"):
        data = [json.loads(line[5:]) for line in r.body.decode().splitlines() if line.startswith("data:")]
        notes, last = data[:-1], data[-1]
        progress = [n["params"]["progress"] for n in notes]
        assert progress == sorted(set(progress)) and all(n["params"]["progressToken"] == "p1" for n in notes)
        assert all(n["method"] == "notifications/progress" for n in notes)
    else:
        last = json.loads(r.body)
    assert last["id"] == 1 and last["result"]["structuredContent"]["stdout"] == "a\nb\n"
