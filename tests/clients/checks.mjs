// What a host is asked by every client that speaks JavaScript. A client is a module that says how its package connects
// and calls; see `sdk.mjs`. What it is asked of is in a plan, whose file is the first argument; see `plan` in
// xtask/src/clients.rs. Each check is told on a line of JSON: {client, over, check, ok, detail, ms}.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { cp, rm } from 'node:fs/promises';
import { basename } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

/** The plan that the first argument names. */
export const plan = JSON.parse(readFileSync(process.argv[2], 'utf8'));

const PATIENCE = 60_000;
const WORK = { description: 'foreign client', task: plan.question };
/** A task that tells where it is, and then goes on until it is cancelled. */
const ENDLESS = { description: 'endless', task: 'summary under-way\nsleep' };

let failed = false;

/** Carries a check out and tells how it went. */
export async function check(client, over, name, carryOut) {
    const begun = Date.now();
    let ok = true;
    let detail;
    try {
        detail = await within(PATIENCE, name, carryOut());
    } catch (error) {
        [ok, failed] = [false, true];
        detail = `${error?.stack ?? error}`;
    }
    console.log(JSON.stringify({ client, over, check: name, ok, detail: detail ?? null, ms: Date.now() - begun }));
    return ok;
}

/** Ends the process, with 1 where a check failed: whatever a client still holds open. */
export function end() {
    process.exit(failed ? 1 : 0);
}

async function within(ms, what, promise) {
    const late = new AbortController();
    const never = pause(ms, undefined, { signal: late.signal }).then(() => {
        throw new Error(`${what}: nothing for ${ms} ms`);
    });
    try {
        return await Promise.race([promise, never]);
    } finally {
        late.abort();
        never.catch(() => {});
    }
}

/** Whether a file of a member is there before anybody serves it. */
const isInstalled = file => !['jobs', 'memory', '.owner'].includes(basename(file));

async function until(what, ask) {
    const begun = Date.now();
    for (;;) {
        const answer = await ask();
        if (answer !== undefined) return answer;
        if (Date.now() - begun > PATIENCE) throw new Error(`waited ${PATIENCE} ms for ${what}`);
        await pause(20);
    }
}

/** What a call was answered with, which must have worked: the text says the same as the structured content. */
async function told(client, name, args, options) {
    const result = await client.call(name, args, options);
    assert.ok(!result.isError, `${name}: ${JSON.stringify(result.content)}`);
    assert.equal(result.content[0].type, 'text');
    assert.deepEqual(JSON.parse(result.content[0].text), result.structuredContent);
    return result.structuredContent;
}

/** The report that a call was answered with: Markdown, and nothing that a client would show a model in its place. */
async function report(client, name, args, options) {
    const result = await client.call(name, args, options);
    assert.ok(!result.isError, `${name}: ${JSON.stringify(result.content)}`);
    assert.equal(result.structuredContent, undefined);
    return { output: result.content[0].text, ...result._meta['guild/job'] };
}

/** Asks until the job has ended; its last status. */
function ended(client, jobId) {
    return until(`${jobId} to end`, async () => {
        const status = await told(client, 'status', { jobId });
        return status.status === 'running' ? undefined : status;
    });
}

/** The error that a promise must end in. */
async function refusal(promise) {
    const value = await promise.then(
        value => ({ value }),
        error => ({ error }),
    );
    assert.ok(value.error, `no error, but ${JSON.stringify(value.value)}`);
    return value.error;
}

/**
 * All checks of one client over one way to connect.
 *
 * `connect(at, onTools?, more?)` connects to what `at` names in the plan, "roster", "toolbox", "bridge" or "alone", and gives
 * `{client, version, call(name, args, options?), close()}`: the package's own client, the version that was agreed on where
 * that is known, and a call of a tool. `onTools` is given the tools whenever the host says that they changed; `more` goes to
 * a command.
 */
export async function all(name, over, version, connect) {
    const { tool, worker, endless } = plan;
    const go = (what, carryOut) => check(name, over, what, carryOut);
    let host;
    const connected = await go('connects, and reads what the host says of itself', async () => {
        host = await connect('roster');
        if (host.version !== undefined) assert.equal(host.version, version);
        assert.ok(host.client.getServerVersion().version, 'the server says its version');
        const instructions = host.client.getInstructions() ?? '';
        assert.ok(instructions.includes(`\`${worker}\``), `instructions name the worker: ${instructions}`);
        return `${host.client.getServerVersion().name}, ${version}`;
    });
    if (!connected) return;

    await go('lists tools of components, and one set of tools for all workers', async () => {
        const { tools } = await host.client.listTools();
        const names = tools.map(tool => tool.name);
        assert.equal(new Set(names).size, names.length);
        for (const verb of ['workers', 'dispatch', 'list', 'status', 'result', 'cancel', 'delete']) {
            const bridged = tools.find(tool => tool.name === verb);
            assert.ok(bridged, `${verb} is one of ${names}`);
            assert.ok(bridged.description && bridged.inputSchema.type === 'object');
        }
        assert.ok(names.includes(`${tool.member}__${tool.name}`), `${tool.member}__${tool.name} is one of ${names}`);
        // A client warns of each format that JSON Schema does not know, on its user's terminal.
        const strange = tools.filter(tool => /"format":"(u?int|float|double)/.test(JSON.stringify(tool)));
        assert.deepEqual(strange.map(({ name }) => name), [], 'tools whose schemas have formats of Rust');
        return `${names.length} tools`;
    });

    await go("calls a component's tool", async () => {
        assert.deepEqual(await told(host, `${tool.member}__${tool.name}`, tool.input), tool.output);
    });

    await go('is told what is wrong with an input, as a result', async () => {
        const result = await host.call(`${tool.member}__${tool.name}`, tool.wrong);
        assert.equal(result.isError, true);
        assert.ok(result.content[0].text.length > 10, JSON.stringify(result));
        return result.content[0].text;
    });

    await go('is told that a job is unknown, as a result', async () => {
        const result = await host.call('status', { jobId: '../outside' });
        assert.equal(result.isError, true);
        assert.match(result.content[0].text, /Unknown job ID/);
    });

    await go('is refused a tool that does not exist', async () => {
        const error = await refusal(host.call(`${tool.member}__no_such_tool`, {}));
        assert.equal(error.code, -32602, `${error}`);
        return error.message;
    });

    await go('lists prompts, and gets the one about the workers', async () => {
        const { prompts } = await host.client.listPrompts();
        assert.ok(prompts.length >= 1 && prompts.every(prompt => prompt.description));
        const { messages } = await host.client.getPrompt({ name: prompts[0].name });
        assert.ok(messages[0].content.text.includes(`\`${worker}\``));
        return prompts.map(prompt => prompt.name).join(', ');
    });

    let done;
    await go('dispatches, follows, and fetches the result', async () => {
        const { jobId, status } = await told(host, 'dispatch', { worker, ...WORK });
        assert.equal(status, 'running');
        const end = await ended(host, jobId);
        assert.equal(end.status, 'completed', JSON.stringify(end));
        const { output } = await report(host, 'result', { jobId });
        assert.ok(output.includes(plan.found), output);
        const { jobs } = await told(host, 'list', { detail: 'detailed' });
        assert.ok(jobs.some(job => job.jobId === jobId && job.description === WORK.description));
        done = { jobId, output };
    });

    await go('reads the result as a resource', async () => {
        assert.ok(done, 'there is no result');
        const of = [];
        let cursor;
        do {
            const page = await host.client.listResources({ cursor });
            of.push(...page.resources.filter(({ uri }) => uri.startsWith(`guild://${worker}/jobs/${done.jobId}/`)));
            cursor = page.nextCursor;
        } while (cursor);
        const texts = [];
        for (const { uri } of of) texts.push(...(await host.client.readResource({ uri })).contents);
        assert.ok(texts.some(({ text }) => text === done.output), JSON.stringify(texts));
        const { resourceTemplates } = await host.client.listResourceTemplates();
        return [...of.map(({ uri }) => uri), ...resourceTemplates.map(({ uriTemplate }) => uriTemplate)].join(' ');
    });

    await go('is refused a resource that does not exist', async () => {
        const error = await refusal(host.client.readResource({ uri: `guild://${worker}/jobs/../../outside` }));
        // Which of the two is a matter of the version: -32002 was for this until 2026-07-28.
        assert.ok([-32002, -32602].includes(error.code), `${error}`);
        return `${error.code}`;
    });

    await go('dispatches, and cancels', async () => {
        const { jobId } = await told(host, 'dispatch', { worker: endless, ...ENDLESS });
        assert.equal((await told(host, 'status', { jobId })).status, 'running');
        assert.equal((await told(host, 'cancel', { jobId })).status, 'cancelled');
        assert.equal((await told(host, 'status', { jobId })).status, 'cancelled');
        const result = await host.call('result', { jobId });
        assert.equal(result.isError, true);
        assert.match(result.content[0].text, /cancelled/);
        assert.equal((await told(host, 'delete', { jobId })).deleted, true);
    });

    await go('waits for the report', async () => {
        const end = await report(host, 'dispatch', { worker, ...WORK, wait: true });
        assert.equal(end.status, 'completed');
        assert.ok(end.output.includes(plan.found), end.output);
    });

    await go('hears of progress while it waits, and how a job ended that somebody else cancelled', async () => {
        const other = await connect('roster');
        const heard = [];
        let cancelled;
        const onprogress = progress => {
            heard.push(progress);
            if (!progress.message?.includes('under-way') || cancelled) return;
            cancelled = (async () => {
                const { jobs } = await told(other, 'list', { worker: endless, detail: 'detailed', filter: description });
                assert.equal(jobs.length, 1);
                await told(other, 'cancel', { jobId: jobs[0].jobId });
            })();
            // It is waited for below.
            cancelled.catch(() => {});
        };
        const description = `waits over ${name} ${over}`;
        const wait = { worker: endless, ...ENDLESS, description, wait: true };
        const result = await host.call('dispatch', wait, { onprogress });
        assert.ok(cancelled, `progress: ${JSON.stringify(heard)}`);
        await cancelled;
        await other.close();
        assert.match(result.content[0].text, /cancelled/);
        heard.reduce((last, { progress }) => {
            assert.ok(progress > last, 'progress increases');
            return progress;
        }, -1);
        return heard.map(({ message }) => message).join(' | ');
    });

    await go('gives a waiting call up, and the job goes on', async () => {
        const description = `left by ${name} ${over}`;
        const leave = new AbortController();
        const onprogress = ({ message }) => message?.includes('under-way') && leave.abort();
        const wait = { worker: endless, ...ENDLESS, description, wait: true };
        await refusal(host.call('dispatch', wait, { onprogress, signal: leave.signal }));
        assert.ok(leave.signal.aborted, 'it was not given up, but ended');
        const { jobs } = await told(host, 'list', { worker: endless, detail: 'detailed', filter: description });
        assert.deepEqual(jobs.map(job => job.status), ['running']);
        await told(host, 'cancel', { jobId: jobs[0].jobId });
    });

    await go('works side by side with another of its kind', async () => {
        const both = await Promise.all([connect('roster'), connect('roster')]);
        const outputs = await Promise.all(
            both.map(async (one, n) => {
                const called = await one.call(`${tool.member}__${tool.name}`, tool.input);
                assert.deepEqual(called.structuredContent, tool.output);
                const work = { worker, ...WORK, description: `side by side ${n}` };
                const { jobId } = await told(one, 'dispatch', work);
                const end = await ended(one, jobId);
                assert.deepEqual([end.status, end.description], ['completed', work.description]);
                return jobId;
            }),
        );
        assert.notEqual(outputs[0], outputs[1]);
        await Promise.all(both.map(one => one.close()));
    });

    await go('is told when a member comes and when it goes', async () => {
        const key = `new-${name}-${over}`.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-');
        const there = `${plan.members}/${key}`;
        const isNew = ({ name }) => name.startsWith(`${key}__`);
        let tools;
        const watching = await connect('roster', (error, now) => (tools = error ? [{ name: `${error}` }] : now));
        await watching.client.listTools();
        try {
            await cp(`${plan.members}/${tool.member}`, there, { recursive: true, filter: isInstalled });
            await until('news of a member', () => (tools?.some(isNew) ? true : undefined));
            const output = await told(watching, `${key}__${tool.name}`, tool.input);
            assert.deepEqual(output, tool.output);
        } finally {
            await rm(there, { recursive: true });
        }
        await until('news of its end', () => (tools?.some(isNew) ? undefined : true));
        await watching.close();
    });

    // Over HTTP a member has endpoints of its own; over stdio `--member` leaves the names as they are.
    const isHttp = over.startsWith('HTTP');
    await go('speaks to a toolbox alone', async () => {
        const own = await connect('toolbox');
        const called = isHttp ? tool.name : `${tool.member}__${tool.name}`;
        const names = (await own.client.listTools()).tools.map(tool => tool.name);
        assert.ok(names.includes(called) && !names.some(name => name.endsWith('dispatch')), `${names}`);
        assert.deepEqual(await told(own, called, tool.input), tool.output);
        await own.close();
        return names.join(', ');
    });

    await go("speaks to a worker's bridge alone", async () => {
        const bridge = await connect('bridge');
        const prefix = isHttp ? '' : `${worker}-dispatch__`;
        const names = (await bridge.client.listTools()).tools.map(tool => tool.name);
        const six = ['cancel', 'delete', 'dispatch', 'list', 'result', 'status'];
        assert.deepEqual(names.toSorted(), six.map(name => prefix + name));
        const end = await report(bridge, `${prefix}dispatch`, { ...WORK, wait: true });
        assert.equal(end.status, 'completed');
        await bridge.close();
    });

    if (!isHttp) {
        await go('starts a server that is its own host', async () => {
            const members = `${plan.directory}/alone-${name}-${over.replaceAll(' ', '-')}`;
            for (const key of [tool.member, worker]) {
                await cp(`${plan.members}/${key}`, `${members}/${key}`, { recursive: true, filter: isInstalled });
            }
            const alone = await connect('alone', undefined, [members]);
            assert.deepEqual(await told(alone, `${tool.member}__${tool.name}`, tool.input), tool.output);
            const { jobId } = await told(alone, 'dispatch', { worker, ...WORK });
            assert.equal((await ended(alone, jobId)).status, 'completed');
            await alone.close();
        });
    }

    await go('says good-bye', () => host.close());
}
