// The official TypeScript SDK, 1.x: MCP up to 2025-11-25, with sessions.

import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';

import { all, end, plan } from './checks.mjs';

const transports = {
    HTTP: at => new StreamableHTTPClientTransport(new URL(plan.http[at])),
    stdio: (at, more) => {
        const [command, ...args] = [...plan.stdio[at], ...more];
        return new StdioClientTransport({ command, args, env: plan.env });
    },
};

for (const [over, transport] of Object.entries(transports)) {
    await all('sdk', over, '2025-11-25', async (at, onChanged, more = []) => {
        const listChanged = onChanged && { tools: { onChanged } };
        const client = new Client({ name: 'foreign', version: '1.0.0' }, { listChanged });
        const wire = transport(at, more);
        await client.connect(wire);
        return {
            client,
            version: wire.protocolVersion,
            call: (name, args, options) => client.callTool({ name, arguments: args }, undefined, options),
            close: async () => {
                // A session ends when its client says so, and not before.
                await wire.terminateSession?.();
                await client.close();
            },
        };
    });
}
end();
