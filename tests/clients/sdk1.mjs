// The official TypeScript SDK, 1.x: sdk1.mjs http|stdio SANDBOX
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { config, runCases, wire } from "./cases.mjs";

const transport =
  wire === "http"
    ? new StreamableHTTPClientTransport(new URL(config.url), {
        requestInit: { headers: { Authorization: `Bearer ${config.token}` } },
      })
    : new StdioClientTransport({ command: config.command[0], args: config.command.slice(1), env: config.env });
const client = new Client({ name: "clients-test", version: "1" });
await client.connect(transport);
const failed = await runCases({
  cancels: wire === "stdio", // before 2026-07-28 a closed stream is not a cancelled call
  client: {
    list: () => client.listTools(),
    call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
  },
});
await client.close();
process.exit(failed ? 1 : 0);
