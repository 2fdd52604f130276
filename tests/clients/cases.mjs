// What every TypeScript client has to manage. The file of a client connects it and calls runCases.
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";

export const config = JSON.parse(readFileSync(process.env.CLIENTS_CONFIG, "utf8"));
export const [wire, sandbox] = process.argv.slice(2);

async function until(condition, seconds, what) {
  const end = Date.now() + seconds * 1000;
  for (;;) {
    const value = await condition();
    if (value) return value;
    assert(Date.now() < end, `not within ${seconds} s: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const exists = (name) => existsSync(join(config.data, sandbox, "workspace", name));

/** Progress must be told, and every value must be greater than the one before. */
function follow() {
  const seen = [];
  return {
    onprogress: (p) => seen.push(p),
    check(least) {
      assert(seen.length >= least, `${seen.length} progress notifications, not ${least}`);
      for (let i = 1; i < seen.length; i++)
        assert(seen[i].progress > seen[i - 1].progress, `progress ${JSON.stringify(seen)}`);
      assert(seen.some((p) => /step/.test(p.message ?? "")), `no line of output in ${JSON.stringify(seen)}`);
    },
  };
}

/**
 * client: { list(), call(name, args, options) } with the SDK's own results and errors.
 * cancels: aborting a call ends its command; else the command goes on.
 */
export async function runCases({ client, cancels }) {
  const call = client.call;
  const ok = async (name, args, options) => {
    const r = await call(name, args, options);
    assert(!r.isError, JSON.stringify(r));
    return r.structuredContent;
  };
  const sh = (command) => ok("exec", { sandbox, command });

  const cases = {
    async list() {
      const { tools } = await client.list();
      const names = tools.map((t) => t.name);
      for (const name of ["exec", "run_background", "get_job", "stop_job"]) assert(names.includes(name), `${names}`);
      for (const t of tools) assert(t.inputSchema.type === "object" && t.description && t.annotations, t.name);
    },
    async exec() {
      const r = await call("exec", { sandbox, command: "echo out; echo err >&2; exit 3" });
      assert(!r.isError);
      assert.equal(r.structuredContent.exit_code, 3);
      assert.equal(r.structuredContent.stdout, "out\n");
      assert.equal(r.structuredContent.stderr, "err\n");
      assert.deepEqual(JSON.parse(r.content[0].text), r.structuredContent);
    },
    async "exec with progress"() {
      const steps = follow();
      const command = "for i in 1 2 3; do echo step $i; sleep 1; done";
      const r = await ok("exec", { sandbox, command }, { onprogress: steps.onprogress });
      assert.equal(r.exit_code, 0);
      steps.check(2);
    },
    async "job with progress"() {
      const steps = follow();
      const command = "for i in 1 2 3; do echo step $i; sleep 1; done; exit 4";
      const { job_id } = await ok("run_background", { sandbox, command });
      const r = await ok("get_job", { job_id, wait: 20 }, { onprogress: steps.onprogress });
      assert.equal(r.status, "finished");
      assert.equal(r.exit_code, 4);
      assert.match(r.log_tail, /step 3/);
      steps.check(2);
    },
    async "cancel exec"() {
      await cancelled("plain", {});
    },
    async "cancel exec with progress"() {
      await cancelled("told", { onprogress() {} });
    },
    async "cancel leaves a job alone"() {
      const command = "touch job-started; sleep 1; touch job-done";
      const { job_id } = await ok("run_background", { sandbox, command });
      const stop = new AbortController();
      const waiting = call("get_job", { job_id, wait: 20 }, { signal: stop.signal, onprogress() {} });
      waiting.catch(() => {});
      await until(() => exists("job-started"), 10, "the job runs");
      stop.abort();
      await assert.rejects(waiting);
      const r = await ok("get_job", { job_id, wait: 20 });
      assert.equal(`${r.status} ${r.exit_code}`, "finished 0");
      assert(exists("job-done"));
    },
    async "bad argument"() {
      const r = await call("exec", { sandbox, command: "true", timeout: "soon" });
      assert.equal(r.isError, true);
      assert(r.structuredContent === undefined);
      assert.match(r.content[0].text, /timeout/);
      const missing = await call("exec", { sandbox });
      assert.equal(missing.isError, true);
      assert.match(missing.content[0].text, /command/);
    },
    async "unknown tool"() {
      await assert.rejects(call("exex", { command: "true" }), (e) => e.code === -32602 && /exex/.test(e.message));
    },
  };

  /** A command with a child: after aborting both are gone, so that neither file can come. */
  async function cancelled(mark, options) {
    const stop = new AbortController();
    const command = `sh -c 'sleep 3; touch ${mark}-child' & touch ${mark}-started; sleep 3; touch ${mark}-done; wait`;
    const running = call("exec", { sandbox, command }, { signal: stop.signal, ...options });
    running.catch(() => {});
    await until(() => exists(`${mark}-started`), 10, "the command runs");
    const started = Date.now();
    stop.abort();
    await assert.rejects(running);
    if (!cancels) {
      await until(() => exists(`${mark}-child`) && exists(`${mark}-done`), 10, "the command goes on");
      return;
    }
    const left = async () => (await sh(`ps -o args | grep -c '[-]child'; true`)).stdout.trim();
    await until(async () => (await left()) === "0", 2.5, "the command's tree is gone");
    await pause(Math.max(0, started + 3300 - Date.now()));
    assert(!exists(`${mark}-child`) && !exists(`${mark}-done`), "the command went on");
  }

  let failed = 0;
  for (const [name, run] of Object.entries(cases)) {
    const since = Date.now();
    try {
      await run();
      console.log(`ok ${name} (${Date.now() - since} ms)`);
    } catch (e) {
      failed++;
      console.log(`FAIL ${name}: ${String(e?.message ?? e).replaceAll("\n", " ").slice(0, 600)}`);
    }
  }
  return failed;
}
