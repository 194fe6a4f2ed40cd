// Plain curl, which sends what Guild Hall's own client sends and expects what it expects.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

import { check, end, plan } from './checks.mjs';

const run = promisify(execFile);
const HEADERS = [
    'Content-Type: application/json',
    'MCP-Protocol-Version: 2025-06-18',
    'Origin: http://localhost',
    'Accept: */*',
];

/** One POST: its status, the type of the answer, and the answer. */
async function post(at, body) {
    const headers = HEADERS.flatMap(header => ['--header', header]);
    const told = ['--silent', '--show-error', '--max-time', '30', '--write-out', '\n%{http_code} %{content_type}'];
    const data = ['--data-binary', typeof body === 'string' ? body : JSON.stringify(body)];
    const { stdout } = await run('curl', [...told, ...headers, ...data, plan.http[at]]);
    const lines = stdout.split('\n');
    const [status, type] = lines.pop().split(' ');
    return { status: Number(status), type, body: lines.join('\n') };
}

let id = 0;

/** A call as Guild Hall's client makes it: the answer has to be plain JSON, with status 200. */
async function call(at, method, params) {
    id += 1;
    const answer = await post(at, { jsonrpc: '2.0', id, method, params });
    assert.deepEqual([answer.status, answer.type], [200, 'application/json'], JSON.stringify(answer));
    const { jsonrpc, id: echoed, ...outcome } = JSON.parse(answer.body);
    assert.deepEqual([jsonrpc, echoed], ['2.0', id]);
    return outcome;
}

async function told(at, method, params) {
    const { result, error } = await call(at, method, params);
    assert.ok(result, `${method}: ${JSON.stringify(error)}`);
    return result;
}

const go = (name, carryOut) => check('curl', 'HTTP', name, carryOut);
const HELLO = {
    protocolVersion: '2025-06-18',
    capabilities: {},
    clientInfo: { name: 'guild-hall', version: '0.1.0' },
};

await go('initializes every kind of endpoint', async () => {
    for (const at of Object.keys(plan.http)) {
        const hello = await told(at, 'initialize', HELLO);
        assert.equal(hello.protocolVersion, '2025-06-18');
        assert.ok(hello.capabilities.tools && hello.serverInfo.name, JSON.stringify(hello));
        const { status, body } = await post(at, { jsonrpc: '2.0', method: 'notifications/initialized' });
        assert.deepEqual([status, body], [202, '']);
        assert.deepEqual(await told(at, 'ping', {}), {});
    }
});

await go('lists the tools of a worker, which has none, and of a toolbox', async () => {
    assert.deepEqual((await told('member', 'tools/list', {})).tools, []);
    const { tools } = await told('toolbox', 'tools/list', {});
    assert.ok(tools.some(({ name }) => name === plan.tool.name));
});

await go('calls a tool', async () => {
    const { name, input, output, wrong } = plan.tool;
    const right = await told('toolbox', 'tools/call', { name, arguments: input });
    assert.deepEqual(right.structuredContent, output);
    assert.equal((await told('toolbox', 'tools/call', { name, arguments: wrong })).isError, true);
    const { error } = await call('toolbox', 'tools/call', { name: 'no_such_tool', arguments: {} });
    assert.equal(error.code, -32602);
});

await go('dispatches, follows, fetches the result, and deletes the job', async () => {
    const { jobId } = await told('member', 'worker/dispatch', { description: 'by curl', task: plan.question });
    let status;
    do status = await told('member', 'worker/status', { jobId });
    while (status.status === 'running');
    assert.equal(status.status, 'completed', JSON.stringify(status));
    const fields = 'jobId status description summary questions decisions error startedAt completedAt'.split(' ');
    for (const field of fields) assert.ok(field in status, `${field}: ${JSON.stringify(status)}`);
    const { output } = await told('member', 'worker/result', { jobId });
    assert.ok(output.includes(plan.found), output);
    const { jobs } = await told('member', 'worker/list', { filter: 'by *' });
    assert.deepEqual(jobs, [{ jobId, status: 'completed' }]);
    assert.deepEqual(await told('member', 'worker/delete', { jobId }), { jobId, deleted: true });
    assert.deepEqual((await call('member', 'worker/status', { jobId })).error.code, -32602);
});

await go('dispatches, and cancels', async () => {
    const { jobId } = await told('endless', 'worker/dispatch', { description: 'by curl', task: 'sleep' });
    assert.deepEqual(await told('endless', 'worker/cancel', { jobId }), { jobId, status: 'cancelled' });
    assert.match((await call('endless', 'worker/result', { jobId })).error.message, /cancelled/);
});

await go('is told what is wrong, with status 200', async () => {
    const worker = await call('toolbox', 'worker/list', {});
    assert.equal(worker.error.code, -32601, 'no worker');
    assert.equal((await call('member', 'no/such/method', {})).error.code, -32601);
    assert.equal((await call('member', 'worker/dispatch', { task: 'x' })).error.code, -32602);
    const { status, type, body } = await post('member', '{"jsonrpc": "2.0", ');
    assert.deepEqual([status, type, JSON.parse(body).error.code], [200, 'application/json', -32700]);
});

end();
