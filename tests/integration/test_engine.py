"""The Docker engine: any API version it speaks, and what holds while it is away."""

import json

import pytest

from engine import Engine
from server import Server, wait_for


@pytest.fixture
def behind(tmp_path):
    """A server whose Docker is reached through Engine(...)."""
    made = []

    def make(**versions):
        engine = Engine(tmp_path / "docker.sock", **versions)
        s = Server(SMCP_DOCKER_SOCKET=engine.path)
        made.extend([s.stop, engine.close])
        return s, engine

    yield make
    for end in made:
        end()


def test_an_engine_that_refuses_old_versions(behind):
    s, engine = behind(newest="1.47", oldest="1.44")
    s.start()
    assert s.sh("b", "echo hi") == "hi\n"
    assert s.ok("destroy_sandbox", sandbox="b", delete_files=True)["destroyed"]
    assert engine.asked == {"1.47"}
    assert json.loads(s.health().body)["docker"] == {"ok": True, "api": "1.47"}


def test_an_engine_that_is_too_old(behind):
    s, _ = behind(newest="1.39", oldest="1.12")
    s.start(healthy=False)
    wait_for(lambda: (s.health() or b"") and s.health().body.startswith(b"{"), 20, "the responder answers")
    e = s.fails("exec", sandbox="b", command="true")
    assert "1.39" in e["error"] and "1.41" in e["error"] and "newer" in e["fix"]


def test_while_docker_is_away(behind):
    s, engine = behind()
    s.start()
    s.sh("b", "true")
    engine.close()
    assert s.sh("b", "echo still") == "still\n"  # a command does not need Docker
    e = s.fails("exec", sandbox="new", command="true")
    assert e["code"] == "docker_down" and "start Docker" in e["fix"]
    wait_for(lambda: s.health().status == 503, 20, "/healthz says so")
    wait_for(lambda: json.loads(s.health().body)["docker"]["ok"] is False, 20, "and which part it is")
    again = Engine(engine.path)
    try:
        s.wait_healthy()
        assert s.sh("new", "echo back") == "back\n"
    finally:
        again.close()
