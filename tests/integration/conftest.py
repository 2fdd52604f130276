import re
import zlib

import pytest

from server import BUILD, MINI, Server, docker


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    """A skipped test is a failed test."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid} was skipped, which counts as failed: {report.longrepr}"


def pytest_sessionstart(session):
    missing = [p for p in ("sandbox-mcp", "jobs-runner", "sandbox-agent") if not (BUILD / p).exists()]
    if missing:
        pytest.exit(f"{', '.join(missing)} not in {BUILD}: run make", 2)
    if not docker("images", "-q", MINI, check=False):
        pytest.exit(f"there is no image {MINI}: run images/build.sh mini", 2)


@pytest.fixture(scope="session")
def server():
    s = Server()
    try:
        s.start()
        yield s
    finally:
        s.stop()


@pytest.fixture
def make_server():
    """make_server(SMCP_X=...) starts a server of its own with other settings."""
    started = []

    def make(**settings):
        s = Server(**settings)
        started.append(s)
        return s.start()

    yield make
    errors = []
    for s in started:
        try:
            s.stop()
        except AssertionError as e:
            errors.append(str(e))
    assert not errors, "\n".join(errors)


@pytest.fixture
def box(request, server):
    """Name of a sandbox that no other test uses; removed with its files at the end."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name).strip("-")[:40]
    name += f"-{zlib.crc32(request.node.nodeid.encode()):08x}"
    yield name
    server.call("destroy_sandbox", sandbox=name, delete_files=True)
