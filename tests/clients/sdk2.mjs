// The official TypeScript SDK, 2.x: sdk2.mjs http|stdio SANDBOX auto|pinned|legacy
import assert from "node:assert/strict";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { config, runCases, wire } from "./cases.mjs";

const how = process.argv[4];
const mode = how === "pinned" ? { pin: "2026-07-28" } : how;
const transport =
  wire === "http"
    ? new StreamableHTTPClientTransport(new URL(config.url), {
        requestInit: { headers: { Authorization: `Bearer ${config.token}` } },
      })
    : new StdioClientTransport({ command: config.command[0], args: config.command.slice(1), env: config.env });
const client = new Client({ name: "clients-test", version: "1" }, { versionNegotiation: { mode } });
await client.connect(transport);
const version = client.getNegotiatedProtocolVersion?.();
if (version) assert.equal(version, how === "legacy" ? "2025-11-25" : "2026-07-28");
const failed = await runCases({
  cancels: wire === "stdio" || how !== "legacy",
  client: {
    list: () => client.listTools(),
    call: (name, args, options) => client.callTool({ name, arguments: args }, options),
  },
});
await client.close();
process.exit(failed ? 1 : 0);
