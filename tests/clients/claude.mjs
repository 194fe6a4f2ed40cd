// The Claude Code command line, without a model: what it says of servers that were added to it, and which tools a session of
// it would have. The second argument is the program.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';

import { check, end, plan } from './checks.mjs';

const run = promisify(execFile);
const cli = process.argv[3];

// Nobody's login: its home is the plan's, its key is none, and where it looks for its provider every connection ends at once.
const nobody = createServer(connection => connection.destroy()).listen(0, '127.0.0.1');
await new Promise(resolve => nobody.on('listening', resolve));
const env = {
    ...plan.env,
    PATH: process.env.PATH,
    CLAUDE_CONFIG_DIR: `${plan.env.HOME}/claude`,
    ANTHROPIC_BASE_URL: `http://127.0.0.1:${nobody.address().port}`,
    ANTHROPIC_API_KEY: 'none',
    CLAUDE_CODE_MAX_RETRIES: '0',
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
    DISABLE_AUTOUPDATER: '1',
    DISABLE_TELEMETRY: '1',
    DISABLE_ERROR_REPORTING: '1',
};
const options = { env, cwd: plan.directory, timeout: 60_000 };

const go = (name, carryOut) => check('claude', 'HTTP and stdio', name, carryOut);

await go('adds a server of each transport, and is connected to both', async () => {
    await run(cli, ['mcp', 'add', '--scope', 'user', '--transport', 'http', 'web', plan.http.roster], options);
    await run(cli, ['mcp', 'add', '--scope', 'user', 'pipe', '--', ...plan.stdio.roster], options);
    const { stdout } = await run(cli, ['mcp', 'list'], options);
    for (const name of ['web', 'pipe']) assert.match(stdout, new RegExp(`^${name}: .*Connected$`, 'm'));
});

/** The first thing that a session says of itself; it ends there, before its provider is asked for anything. */
async function session() {
    const streams = ['--output-format', 'stream-json', '--input-format', 'stream-json', '--verbose'];
    const child = spawn(cli, ['-p', ...streams, '--no-session-persistence', '--tools', ''], {
        ...options,
        stdio: ['pipe', 'pipe', 'inherit'],
    });
    const message = { role: 'user', content: 'hello' };
    child.stdin.write(`${JSON.stringify({ type: 'user', message, parent_tool_use_id: null, client_composed: true })}\n`);
    try {
        for await (const line of createInterface(child.stdout)) {
            const said = JSON.parse(line);
            if (said.type === 'system' && said.subtype === 'init') return said;
        }
        throw new Error('the session said nothing of itself');
    } finally {
        child.kill();
    }
}

await go('has the tools of both in a session', async () => {
    const { tools, mcp_servers: servers, claude_code_version: version } = await session();
    assert.deepEqual(servers.map(({ name, status }) => `${name} ${status}`).toSorted(), ['pipe connected', 'web connected']);
    const wanted = ['workers', 'dispatch', 'result', `${plan.tool.member}__${plan.tool.name}`];
    for (const server of ['web', 'pipe']) {
        for (const tool of wanted) assert.ok(tools.includes(`mcp__${server}__${tool}`), `${tool} of ${server}: ${tools}`);
    }
    return `version ${version}, ${tools.length} tools`;
});

end();
