"""The figures of `make bench`. See tests/bench/run, which builds what this needs and starts it.

The machine is noisy, so what is compared is measured in turns within one run: a round of the floor,
a round of exec, and so on; the figure is the median of the rounds. It is measured in the default image
(where it is built), for which the targets are, and in the test image, whose static busybox makes the
floor lower and leaves everything else as it is.
"""

import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
from server import BASE, MINI, ROOT, TOKEN, Server, docker, parallel  # noqa: E402

LOAD = os.environ["LOAD"]
QUICK = "--quick" in sys.argv
ROUNDS = 3 if QUICK else 5
DOCKER_SOCKET = os.environ.get("SMCP_DOCKER_SOCKET", "/var/run/docker.sock")
BOX = "bench"  # of the default image; of the test image: "bench-mini"


class UnixHTTP(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(DOCKER_SOCKET)


def rpc_body(method, params=None):
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, **({"params": params} if params else {})})


def exec_body(sandbox=BOX, command="true"):
    return rpc_body("tools/call", {"name": "exec", "arguments": {"sandbox": sandbox, "command": command}})


def load(server, clients, requests, body, word):
    p = subprocess.run([LOAD, str(server.port), str(clients), str(requests), TOKEN, word], input=body, text=True,
                       capture_output=True, timeout=300)
    if p.returncode:
        sys.exit(f"load failed: {p.stdout}{p.stderr}")
    return json.loads(p.stdout)


def floor(container, n, jobs=1):
    argv = ["exec", container, "/usr/local/sbin/sandbox-agent", "--bench-floor", str(n)]
    if jobs > 1:
        argv += ["-j", str(jobs)]
    r = json.loads(docker(*argv))
    return {"p50": r["p50_us"], "p90": r["p90_us"], "p99": r["p99_us"], "rate": r["per_second"]}


def median_of(rounds):
    keys = [k for k, v in rounds[0].items() if isinstance(v, (int, float))]
    return {k: statistics.median(r[k] for r in rounds) for k in keys}


def timed(n, action):
    """Milliseconds of n calls: (median, largest)."""
    all_ms = []
    for _ in range(n):
        start = time.perf_counter()
        action()
        all_ms.append((time.perf_counter() - start) * 1000)
    return statistics.median(all_ms), max(all_ms)


def docker_cli(container):
    subprocess.run(["docker", "exec", container, "sh", "-c", "true"], check=True, stdin=subprocess.DEVNULL)


def docker_run():
    subprocess.run(["docker", "run", "--rm", MINI, "sh", "-c", "true"], check=True, stdin=subprocess.DEVNULL)


def docker_api(container):
    c = UnixHTTP("docker", timeout=60)

    def ask(method, path, body=None):
        c.request(method, "/v1.41" + path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        r = c.getresponse()
        data = r.read()
        if r.status >= 300:
            sys.exit(f"{path}: {r.status} {data!r}")
        return data

    exec_id = json.loads(ask("POST", f"/containers/{container}/exec",
                             {"Cmd": ["sh", "-c", "true"], "AttachStdout": True, "AttachStderr": True}))["Id"]
    ask("POST", f"/exec/{exec_id}/start", {"Detach": False, "Tty": False})
    c.close()
    c.connect()
    assert json.loads(ask("GET", f"/exec/{exec_id}/json"))["ExitCode"] == 0
    c.close()


def memory_kb(pid):
    values = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        name, _, rest = line.partition(":")
        if rest.endswith("kB"):
            values[name] = int(rest.split()[0])
    return values


def measure_one(server, box):
    """One client beside the floor. The machine's speed changes within seconds: each short round is a ratio of its own."""
    container, body = server.container(box), exec_body(box)
    floors, execs = [], []
    load(server, 1, 300, body, '"exit_code":0')  # warm up
    for _ in range(5 * ROUNDS):
        floors.append(floor(container, 150))
        execs.append(load(server, 1, 150, body, '"exit_code":0'))
    return {"floor": median_of(floors), "exec_1": median_of(execs),
            "ratio_1": statistics.median(e["p50"] / f["p50"] for e, f in zip(execs, floors))}


def measure_many(server, box):
    container, body = server.container(box), exec_body(box)
    rounds = {"floor2": [], 4: [], 16: [], 64: []}
    for _ in range(ROUNDS):
        for clients in (16, 4, 64):
            rounds["floor2"].append(floor(container, 400, 2))
            rounds[clients].append(load(server, clients, 800, body, '"exit_code":0'))
    result = {key if isinstance(key, str) else f"exec_{key}": median_of(r) for key, r in rounds.items()}
    floors = rounds["floor2"][::3]  # those just before the rounds of 16 clients
    result["ratio_16"] = statistics.median(e["rate"] / f["rate"] for e, f in zip(rounds[16], floors))
    return result


def measure_rpc(server, m):
    for name, body, word in [("ping", rpc_body("ping"), '"result":{}'), ("tools_list", rpc_body("tools/list"), '"tools":['),
                             ("list_sandboxes", rpc_body("tools/call", {"name": "list_sandboxes"}), BOX)]:
        m[name] = load(server, 8, 1000 if QUICK else 4000, body, word)


def measure_docker(container, m):
    n = 5 if QUICK else 20
    m["docker_exec_ms"], _ = timed(n, lambda: docker_cli(container))
    m["docker_api_ms"], _ = timed(n, lambda: docker_api(container))
    m["docker_run_ms"], _ = timed(3 if QUICK else 5, docker_run)


def measure_create(server, m):
    times = []
    for i in range(3 if QUICK else 5):
        start = time.perf_counter()
        server.sh(f"new-{i}", "true")
        times.append((time.perf_counter() - start) * 1000)
    m["create_ms"] = statistics.median(times)


def measure_memory(server, m):
    """With 20 sandboxes in use by 16 callers at a time; before the flood of 64, which takes more workers for a while."""
    names = [f"mem-{i}" for i in range(20 - len(server.ok("list_sandboxes")["items"]))]
    parallel(10, lambda i: [server.sh(name, "true") for name in names[i::10]])
    parallel(16, lambda i: [server.sh(names[i], "echo x") for _ in range(5)])
    m["sandboxes"] = len(server.ok("list_sandboxes")["items"])
    m["responder_processes"], m["responder_pss_kb"] = responder_memory(server)
    m["runner_pss_kb"] = memory_kb(server.pid("runner"))["Pss"]
    m["product_pss_kb"] = m["responder_pss_kb"] + m["runner_pss_kb"]
    agents = [int(docker("inspect", "-f", "{{.State.Pid}}", c)) for c in server.containers()]
    m["agent_pss_kb"] = max(memory_kb(p)["Pss"] for p in agents)
    m["agent_rss_kb"] = max(memory_kb(p)["Rss"] for p in agents)
    parallel(10, lambda i: [server.ok("destroy_sandbox", sandbox=name, delete_files=True) for name in names[i::10]])


def responder_memory(server):
    workers = [server.pid("responder"), *server.worker_pids()]
    return len(workers), sum(memory_kb(p)["Pss"] for p in workers)


def row(name, value, ratio=""):
    print(f"  {name:<46} {value:>26}  {ratio}")


def latency(r):
    return f"{r['p50']:.0f} / {r['p90']:.0f} / {r['p99']:.0f} us"


def exec_rows(title, e):
    print(f"{title}")
    row("floor: vfork + exec sh -c true (p50/p90/p99)", latency(e["floor"]), "1.00 x floor")
    row("exec true, 1 client (p50/p90/p99)", latency(e["exec_1"]), f"{e['ratio_1']:.2f} x floor")
    row("floor, 2 at a time", f"{e['floor2']['rate']:.0f} /s", "1.00 x parallel floor")
    for n in (4, 16, 64):
        r = e[f"exec_{n}"]
        row(f"exec true, {n} clients (p50 {r['p50'] / 1000:.1f} ms, p99 {r['p99'] / 1000:.1f} ms)", f"{r['rate']:.0f} /s",
            f"{r['rate'] / e['floor2']['rate']:.2f} x parallel floor")


def table(m):
    p50 = m["default"]["exec_1"]["p50"] / 1000
    print(f"\nsandbox-mcp {(ROOT / 'VERSION').read_text().strip()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; "
          f"medians of {ROUNDS} rounds, in turns\n")
    exec_rows(f"default image ({m['image']})", m["default"])
    exec_rows("test image (static busybox)", m["mini"])
    print("beside it")
    row("docker exec, command line", f"{m['docker_exec_ms']:.1f} ms", f"{m['docker_exec_ms'] / p50:.0f} x exec")
    row("docker exec, engine API", f"{m['docker_api_ms']:.1f} ms", f"{m['docker_api_ms'] / p50:.0f} x exec")
    row("docker run --rm", f"{m['docker_run_ms']:.0f} ms", f"{m['docker_run_ms'] / p50:.0f} x exec")
    row("new sandbox to its first result", f"{m['create_ms']:.0f} ms", f"{m['create_ms'] / m['docker_run_ms']:.2f} x docker run")
    for n in ("ping", "tools_list", "list_sandboxes"):
        row(f"{n}, 8 clients (p50 {m[n]['p50'] / 1000:.2f} ms)", f"{m[n]['rate']:.0f} /s")
    row(f"PSS of {m['responder_processes']} responder processes", f"{m['responder_pss_kb'] / 1024:.1f} MB")
    row(f"PSS of {m['peak_processes']} of them, after 64 clients", f"{m['peak_pss_kb'] / 1024:.1f} MB")
    row(f"PSS of the runner, {m['sandboxes']} sandboxes", f"{m['runner_pss_kb'] / 1024:.1f} MB")
    row("largest agent, PSS / RSS", f"{m['agent_pss_kb']} / {m['agent_rss_kb']} KB")


def targets(m):
    e = m["default"]
    p50 = e["exec_1"]["p50"]
    checks = [
        ("exec p50 at most 2.0 x floor", e["ratio_1"], "<=", 2.0),
        ("docker exec at least 25 x slower", m["docker_exec_ms"] * 1000 / p50, ">=", 25),
        ("16 clients at least 0.5 of the parallel floor", e["ratio_16"], ">=", 0.5),
        ("responder and runner at most 20 MB PSS with 20 sandboxes", m["product_pss_kb"] / 1024, "<=", 20),
        ("each agent at most 1 MB RSS", m["agent_rss_kb"] / 1024, "<=", 1),
    ]
    print()
    failed = 0
    for name, value, sign, bound in checks:
        good = value <= bound if sign == "<=" else value >= bound
        failed += not good
        print(f"{'PASS' if good else 'FAIL'}  {name}: {value:.2f} (target {sign} {bound})")
    return failed


def main():
    image = BASE if docker("images", "-q", BASE) else MINI
    m = {"image": image}
    server = Server(SMCP_LOG_LEVEL=6)
    try:
        server.start()
        server.ok("create_sandbox", sandbox=BOX, image=image)
        server.ok("create_sandbox", sandbox="bench-mini", image=MINI)
        m["default"] = measure_one(server, BOX)
        m["mini"] = measure_one(server, "bench-mini")
        measure_memory(server, m)
        m["default"].update(measure_many(server, BOX))
        m["mini"].update(measure_many(server, "bench-mini"))
        m["peak_processes"], m["peak_pss_kb"] = responder_memory(server)
        measure_rpc(server, m)
        measure_docker(server.container(BOX), m)
        measure_create(server, m)
    finally:
        server.stop()
    out = ROOT / "build/bench.json"
    out.write_text(json.dumps(m, indent=1) + "\n")
    table(m)
    sys.exit(1 if targets(m) else 0)


if __name__ == "__main__":
    main()
