// The official TypeScript SDK, 2.x: MCP 2025-11-25 with sessions, as it is by default, and 2026-07-28.

import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';

import { all, end, plan } from './checks.mjs';

const transports = {
    HTTP: at => new StreamableHTTPClientTransport(new URL(plan.http[at])),
    stdio: (at, more) => {
        const [command, ...args] = [...plan.stdio[at], ...more];
        return new StdioClientTransport({ command, args, env: plan.env });
    },
};
const modes = { '2025-11-25': 'legacy', '2026-07-28': { pin: '2026-07-28' } };

for (const [version, mode] of Object.entries(modes)) {
    for (const [over, transport] of Object.entries(transports)) {
        await all('client', `${over} ${version}`, version, async (at, onChanged, more = []) => {
            const listChanged = onChanged && { tools: { onChanged } };
            const about = { name: 'foreign', version: '2.0.0' };
            const client = new Client(about, { listChanged, versionNegotiation: { mode } });
            const wire = transport(at, more);
            await client.connect(wire);
            return {
                client,
                version: client.getNegotiatedProtocolVersion(),
                call: (name, args, options) => client.callTool({ name, arguments: args }, options),
                close: async () => {
                    if (mode === 'legacy') await wire.terminateSession?.();
                    await client.close();
                },
            };
        });
    }
}
end();
