"""The official Python SDK, 1.x or 2.x: python_sdk.py http|stdio SANDBOX legacy|auto|2026-07-28"""

import asyncio
import contextlib
import importlib.metadata
import json
import os
import re
import sys
import time
from pathlib import Path

CONFIG = json.loads(Path(os.environ["CLIENTS_CONFIG"]).read_text())
WIRE, SANDBOX, MODE = sys.argv[1:4]
FIRST = importlib.metadata.version("mcp").startswith("1.")
CANCELS = WIRE == "stdio" or MODE != "legacy"
HEADERS = {"Authorization": f"Bearer {CONFIG['token']}"}

from mcp import StdioServerParameters  # noqa: E402

SERVER = StdioServerParameters(command=CONFIG["command"][0], args=CONFIG["command"][1:], env=CONFIG["env"])


class One:
    """Version 1.x: a session over two streams."""

    error = None

    @contextlib.asynccontextmanager
    async def connect(self):
        from mcp import ClientSession, McpError
        from mcp.client.stdio import stdio_client
        from mcp.client.streamable_http import streamablehttp_client

        self.error = McpError
        transport = streamablehttp_client(CONFIG["url"], headers=HEADERS) if WIRE == "http" else stdio_client(SERVER)
        async with transport as streams, ClientSession(*streams[:2]) as self.session:
            assert (await self.session.initialize()).protocolVersion == "2025-11-25"
            yield self

    async def call(self, name, arguments, progress=None):
        return dump(await self.session.call_tool(name, arguments, progress_callback=progress))

    async def cancel(self, task):
        """This version does not tell the server by itself."""
        from mcp import types

        number = self.session._request_id - 1
        note = types.CancelledNotification(params=types.CancelledNotificationParams(requestId=number))
        await self.session.send_notification(types.ClientNotification(note))
        task.cancel()


class Two:
    """Version 2.x: a client that chooses the era."""

    @contextlib.asynccontextmanager
    async def connect(self):
        from mcp import Client, MCPError
        from mcp.client.stdio import stdio_client
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        self.error = MCPError
        async with contextlib.AsyncExitStack() as stack:
            if WIRE == "http":
                http = await stack.enter_async_context(create_mcp_http_client(headers=HEADERS))
                transport = streamable_http_client(CONFIG["url"], http_client=http)
            else:
                transport = stdio_client(SERVER)
            self.session = await stack.enter_async_context(Client(transport, mode=MODE))
            assert self.session.protocol_version == ("2025-11-25" if MODE == "legacy" else "2026-07-28")
            yield self

    async def call(self, name, arguments, progress=None):
        return dump(await self.session.call_tool(name, arguments, progress_callback=progress))

    async def cancel(self, task):
        task.cancel()


def dump(model):
    return model.model_dump(by_alias=True, mode="json", exclude_none=True)


def exists(name):
    return (Path(CONFIG["data"]) / SANDBOX / "workspace" / name).exists()


async def until(condition, seconds, what):
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        if value:
            return
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.05)


class Cases:
    def __init__(self, client):
        self.client = client

    async def ok(self, name, progress=None, **arguments):
        r = await self.client.call(name, arguments, progress)
        assert not r.get("isError"), r
        return r["structuredContent"]

    async def list(self):
        tools = dump(await self.client.session.list_tools())["tools"]
        names = [t["name"] for t in tools]
        assert {"exec", "run_background", "get_job", "stop_job"} <= set(names), names
        for t in tools:
            assert t["inputSchema"]["type"] == "object" and t["description"] and t["annotations"], t

    async def exec(self):
        r = await self.client.call("exec", {"sandbox": SANDBOX, "command": "echo out; echo err >&2; exit 3"})
        got = r["structuredContent"]
        assert (got["exit_code"], got["stdout"], got["stderr"]) == (3, "out\n", "err\n"), r
        assert json.loads(r["content"][0]["text"]) == got

    def follow(self):
        seen = []

        async def progress(value, total, message):
            seen.append((value, message or ""))

        def check(least):
            values = [v for v, _ in seen]
            assert len(seen) >= least and values == sorted(set(values)), seen
            assert any("step" in m for _, m in seen), seen

        return progress, check

    async def exec_with_progress(self):
        progress, check = self.follow()
        r = await self.ok("exec", progress, sandbox=SANDBOX, command="for i in 1 2 3; do echo step $i; sleep 1; done")
        assert r["exit_code"] == 0
        check(2)

    async def job_with_progress(self):
        progress, check = self.follow()
        command = "for i in 1 2 3; do echo step $i; sleep 1; done; exit 4"
        job = (await self.ok("run_background", sandbox=SANDBOX, command=command))["job_id"]
        r = await self.ok("get_job", progress, job_id=job, wait=20)
        assert (r["status"], r["exit_code"]) == ("finished", 4) and "step 3" in r["log_tail"], r
        check(2)

    async def cancel_exec(self):
        await self.cancelled("plain", None)

    async def cancel_exec_with_progress(self):
        await self.cancelled("told", self.follow()[0])

    async def cancelled(self, mark, progress):
        """After cancelling, the command and its child are gone, so that neither file can come."""
        command = f"sh -c 'sleep 3; touch {mark}-child' & touch {mark}-started; sleep 3; touch {mark}-done; wait"
        task = asyncio.create_task(self.client.call("exec", {"sandbox": SANDBOX, "command": command}, progress))
        await until(lambda: exists(f"{mark}-started"), 10, "the command runs")
        started = time.monotonic()
        await self.client.cancel(task)
        await asyncio.gather(task, return_exceptions=True)
        if not CANCELS:
            await until(lambda: exists(f"{mark}-child") and exists(f"{mark}-done"), 10, "the command goes on")
            return

        async def gone():
            r = await self.ok("exec", sandbox=SANDBOX, command="ps -o args | grep -c '[-]child'; true")
            return r["stdout"].strip() == "0"

        await until(gone, 2.5, "the command's tree is gone")
        await asyncio.sleep(max(0.0, started + 3.3 - time.monotonic()))
        assert not exists(f"{mark}-child") and not exists(f"{mark}-done"), "the command went on"

    async def cancel_leaves_a_job_alone(self):
        command = "touch job-started; sleep 1; touch job-done"
        job = (await self.ok("run_background", sandbox=SANDBOX, command=command))["job_id"]
        task = asyncio.create_task(self.client.call("get_job", {"job_id": job, "wait": 20}, self.follow()[0]))
        await until(lambda: exists("job-started"), 10, "the job runs")
        await self.client.cancel(task)
        await asyncio.gather(task, return_exceptions=True)
        r = await self.ok("get_job", job_id=job, wait=20)
        assert (r["status"], r["exit_code"]) == ("finished", 0) and exists("job-done"), r

    async def bad_argument(self):
        for arguments, word in (({"command": "true", "timeout": "soon"}, "timeout"), ({}, "command")):
            r = await self.client.call("exec", {"sandbox": SANDBOX, **arguments})
            assert r["isError"] and "structuredContent" not in r and word in r["content"][0]["text"], r

    async def unknown_tool(self):
        try:
            await self.client.call("exex", {"command": "true"})
        except self.client.error as e:
            assert e.error.code == -32602 and "exex" in e.error.message, e
        else:
            raise AssertionError("no error")


async def main():
    failed = 0
    async with (One() if FIRST else Two()).connect() as client:
        cases = Cases(client)
        for name in ("list", "exec", "exec_with_progress", "job_with_progress", "cancel_exec",
                     "cancel_exec_with_progress", "cancel_leaves_a_job_alone", "bad_argument", "unknown_tool"):
            since = time.monotonic()
            try:
                await getattr(cases, name)()
                print(f"ok {name.replace('_', ' ')} ({(time.monotonic() - since) * 1000:.0f} ms)", flush=True)
            except Exception as e:
                failed += 1
                text = re.sub(r"\s+", " ", f"{type(e).__name__}: {e}")[:600]
                print(f"FAIL {name.replace('_', ' ')}: {text}", flush=True)
    return failed


sys.exit(1 if asyncio.run(main()) else 0)
