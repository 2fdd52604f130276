"""Settings: wrong ones stop the start with one clear line; the documents come from the same table."""

import os

import pytest

from server import BUILD, ROOT, clean_env, run

RESPONDER = BUILD / "sandbox-mcp"
RUNNER = BUILD / "jobs-runner"


def check(env_text, tmp_path, **env):
    path = tmp_path / "env"
    path.write_text(env_text)
    return run(RESPONDER, "--env-file", path, "--check-config", check=False, env=clean_env(**env))


def test_check_config_prints_what_is_in_force(tmp_path):
    p = check("SMCP_PORT=9001\nSMCP_TOKEN=swordfish-swordfish\n", tmp_path, SMCP_EXEC_WAIT="7")
    assert p.returncode == 0, p.stderr
    values = dict(line.split("=", 1) for line in p.stdout.splitlines())
    assert values["SMCP_PORT"] == "9001" and values["SMCP_EXEC_WAIT"] == "7"
    assert values["SMCP_TOKEN"] == "(set)" and "swordfish" not in p.stdout + p.stderr
    assert all(k.startswith("SMCP_") for k in values) and len(values) > 30


@pytest.mark.parametrize("name,value", [
    ("SMCP_PORT", "0"), ("SMCP_PORT", "http"), ("SMCP_MEM_LIMIT", "2x"), ("SMCP_CPUS", "many"), ("SMCP_DATA_DIR", "here"),
    ("SMCP_EXEC_WAIT", "1s"), ("SMCP_MAX_SANDBOXES", "-1"), ("SMCP_TOOLSETS", "nonsense"), ("SMCP_LOG_LEVEL", "9"),
    ("SMCP_IDLE_STOP_SECONDS", "never"), ("SMCP_WORKERS_MIN", "0"),
])
def test_a_wrong_value_stops_both_programs(name, value, tmp_path):
    for where in ("file", "environment"):
        env_file = tmp_path / "env"
        env_file.write_text(f"{name}={value}\n" if where == "file" else "")
        env = clean_env(**({name: value} if where == "environment" else {}))
        starts = [[RESPONDER, "--check-config"], [RESPONDER, "--listen", tmp_path / "s"]]
        if name != "SMCP_TOOLSETS":  # the runner has no tools
            starts.append([RUNNER])
        for argv in starts:
            p = run(*argv, "--env-file", env_file, check=False, env=env, timeout=20)
            assert p.returncode not in (0, -6), (argv, p.stdout, p.stderr)
            said = p.stderr
            assert name in said and value in said, said
            assert len(said.splitlines()) <= 3


def test_no_token_is_said(tmp_path):
    env_file = tmp_path / "env"
    env_file.write_text(f"SMCP_STATE_DB={tmp_path}/state.db\nSMCP_RUN_DIR={tmp_path}/run\nSMCP_DATA_DIR={tmp_path}/data\n")
    p = run(RESPONDER, "--env-file", env_file, "--listen", tmp_path / "s", check=False, env=clean_env(), timeout=20)
    assert p.returncode != 0
    assert "token" in p.stderr and "make up" in p.stderr
    (tmp_path / "token").write_text("0123456789abcdef0123")
    (tmp_path / "token").chmod(0o644)
    p = run(RESPONDER, "--env-file", env_file, "--listen", tmp_path / "s", check=False, env=clean_env(), timeout=20)
    assert p.returncode != 0 and "chmod 600" in p.stderr


def test_the_env_file_must_be_there():
    for program in (RESPONDER, RUNNER):
        p = run(program, "--env-file", "/nonexistent/env", check=False, env=clean_env(), timeout=20)
        assert p.returncode != 0 and "/nonexistent/env" in p.stderr


@pytest.mark.parametrize("argv,path", [
    (["--env-example"], ".env.example"), (["--config-docs"], "docs/configuration.md"), (["--tools-docs"], "docs/tools.md"),
])
def test_documents_are_those_of_the_program(argv, path):
    p = run(RESPONDER, *argv, env=clean_env())
    assert (ROOT / path).read_text() == p.stdout, "run: make docs"


def test_files_are_private(server):
    for path in (server.state_db, server.run_dir / "doorbell", server.data_dir / ".runs", server.run_dir / "reply"):
        assert os.stat(path).st_mode & 0o077 == 0, path
    assert os.stat(server.run_dir / "fcgi/sandbox-mcp.sock").st_mode & 0o007 == 0


def test_the_token_is_in_no_log_and_no_process_list(server, box):
    server.sh(box, "true")
    server.post({"jsonrpc": "2.0", "id": 1, "method": "ping"}, token="wrong-" + server.settings["SMCP_TOKEN"])
    token = server.settings["SMCP_TOKEN"]
    for name in ("runner", "responder", "lighttpd"):
        assert token not in server.log(name)
        assert token.encode() not in open(f"/proc/{server.pid(name)}/cmdline", "rb").read()
    assert token not in server.sh(box, "env; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'")
    assert token not in str(server.inspect(box))


def test_another_token_file(make_server, tmp_path):
    (tmp_path / "t").write_text("a-token-of-its-own-123\n")
    (tmp_path / "t").chmod(0o600)
    s = make_server(SMCP_TOKEN="", SMCP_TOKEN_FILE=tmp_path / "t")
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert s.post(ping, token="a-token-of-its-own-123").status == 200
    assert s.post(ping).status == 401


def test_allowed_origins_and_hosts(make_server):
    s = make_server(SMCP_ALLOWED_ORIGINS="https://app.example.org,https://b.example", SMCP_ALLOWED_HOSTS="mcp.example.org",
                    SMCP_PUBLIC_BASE_URL="https://public.example.org")
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    for header, value, status in [
            ("Origin", "https://app.example.org", 200), ("Origin", "https://b.example", 200), ("Origin", "https://c.example", 403),
            ("Origin", "http://app.example.org", 403), ("Host", "mcp.example.org", 200), ("Host", "public.example.org", 200),
            ("Host", "other.example.org", 403), ("Host", f"127.0.0.1:{s.port}", 200)]:
        assert s.post(ping, {header: value}).status == status, (header, value)


def test_a_second_runner_of_the_same_instance_gives_way(server):
    p = run(RUNNER, "--env-file", server.env_file, check=False, env=clean_env(), timeout=30)
    assert p.returncode != 0 and p.stderr.strip(), "it says why"
    assert server.health().status == 200
