"""An image that the engine does not have is pulled on first use, once, and whoever waits sees how far it is."""

import threading
import uuid

import pytest

from registry import Registry
from server import MINI, docker, parallel, wait_for


@pytest.fixture
def registry():
    r = Registry(MINI, "pull-" + uuid.uuid4().hex[:8])
    yield r
    r.close()


def messages(server):
    return [row[0] for row in server.sql("SELECT progress FROM requests WHERE progress IS NOT NULL")]


def test_pulled_once_with_progress(server, box, registry):
    answers = []
    caller = threading.Thread(target=lambda: answers.append(
        server.call("create_sandbox", sandbox=box, image=registry.image)))
    caller.start()
    wait_for(lambda: any("pulling" in m for m in messages(server)), 20, "progress of the pull")
    early = server.ok("exec", sandbox=box, command="echo done", wait=1)
    assert early["status"] == "running" and early["job_id"]
    registry.let_go.set()
    caller.join(60)
    created, is_error = answers[0]
    assert not is_error and created["created"] and created["image"] == registry.image
    server.job_end(early["job_id"])
    assert server.job_log(early["job_id"]) == "done\n"
    assert registry.pulls == 1
    assert docker("inspect", "-f", "{{.Config.Image}}", server.container(box)).strip() == registry.image


def test_two_sandboxes_of_one_image(server, box, registry):
    registry.let_go.set()
    names = [box + "-a", box + "-b"]
    made = parallel(2, lambda i: server.ok("create_sandbox", sandbox=names[i], image=registry.image))
    assert all(m["created"] for m in made)
    for name in names:
        assert server.sh(name, "echo hi") == "hi\n"
        server.ok("destroy_sandbox", sandbox=name, delete_files=True)


def test_destroyed_while_it_is_pulled(server, box, registry):
    answers = []
    caller = threading.Thread(target=lambda: answers.append(
        server.call("create_sandbox", sandbox=box, image=registry.image)))
    caller.start()
    wait_for(lambda: any("pulling" in m for m in messages(server)), 20, "the pull")
    assert server.ok("destroy_sandbox", sandbox=box)["destroyed"] is True
    caller.join(60)
    registry.let_go.set()
    answer, is_error = answers[0]
    assert is_error or answer["image"] == MINI


def test_no_such_image_there(server, box, registry):
    registry.let_go.set()
    e = server.fails("create_sandbox", sandbox=box, image=registry.image.replace("latest", "other"))
    assert "other" in e["error"] and e["code"] == "image_missing" and "\n" not in e["error"]
    assert server.containers(box) == []
