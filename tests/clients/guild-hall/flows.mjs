// The command line and the parsers of the original Guild Hall, unchanged, against a hall of ours. What they are asked of is in a
// plan, whose file is the first argument; see `xtask/src/clients/guild_hall.rs`. A check is told as `checks.mjs` does.

import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';

import { check as told, end, plan } from '../checks.mjs';

const env = { ...process.env, GUILD_HALL_HOME: plan.home };
const PATIENCE = 60_000;
/** A task that tells where it is, and then goes on until it is cancelled. */
const ENDLESS = 'summary under-way\nsleep';

const check = (name, carryOut) => told('Guild Hall', 'socket', name, carryOut);

/** Runs the command line: its exit code and what it printed. */
function run(...words) {
    return new Promise(resolve => {
        execFile(plan.node, [plan.cli, ...words], { env }, (error, stdout, stderr) => {
            resolve({ code: error ? error.code : 0, stdout, stderr });
        });
    });
}

/** The JSON that a command prints. A command that fails, as at a route that is not there, fails the check. */
async function ask(...words) {
    const { code, stdout, stderr } = await run(...words);
    assert.equal(code, 0, `${words.join(' ')}: ${stderr}`);
    return JSON.parse(stdout);
}

/** The error that a command ends with, which is not that of a route that is not there. */
async function refused(...words) {
    const { code, stderr } = await run(...words);
    assert.equal(code, 1, words.join(' '));
    assert.doesNotMatch(stderr, /404|JSON at position|(GET|POST) \//);
    return stderr.trim();
}

const read = id => ask('commission', 'read', plan.project, id);

async function until(id, status) {
    const begun = Date.now();
    for (;;) {
        const answer = await read(id);
        if (answer.commission.status === status) {
            return answer;
        }
        assert.ok(Date.now() - begun < PATIENCE, `${id} is ${answer.commission.status}, not ${status}`);
        await pause(50);
    }
}

async function create(worker, title, prompt) {
    const { commissionId } = await ask('commission', 'create', plan.project, worker, title, prompt);
    assert.match(commissionId, /^commission-/);
    return commissionId;
}

let done;
let workers;

await check('system health', async () => {
    assert.equal((await ask('system', 'health')).status, 'ok');
});
await check('project list', async () => {
    const { projects } = await ask('project', 'list');
    assert.deepEqual(projects.map(project => project.name), [plan.project]);
});
await check('project read', async () => {
    assert.equal((await ask('project', 'read', plan.project)).name, plan.project);
});
await check('project register names the command that permits', async () => {
    assert.match(await refused('project', 'register', 'other', '.'), /guild project add/);
});
await check('config read', async () => {
    const config = await ask('config', 'read');
    assert.deepEqual(config.projects.map(project => project.name), [plan.project]);
});
await check('worker list', async () => {
    ({ workers } = await ask('worker', 'list'));
    for (const worker of workers) {
        assert.ok(worker.name && worker.displayName && 'portraitUrl' in worker && 'model' in worker, JSON.stringify(worker));
    }
    assert.ok(workers.length >= 2, JSON.stringify(workers));
});
await check('model list', async () => {
    assert.ok(Array.isArray((await ask('model', 'list')).builtin));
});

const events = spawn(plan.node, [plan.cli, 'event', 'subscribe'], { env, stdio: ['ignore', 'pipe', 'pipe'] });
let said = '';
events.stdout.on('data', piece => (said += piece));
events.stderr.on('data', piece => (said += piece));
// It prints nothing when it is connected, so the first events may come too early: what is waited for comes later.
await pause(500);

await check('commission create, dispatch, read: a result from the documents of the project', async () => {
    done = await create(plan.worker, 'Lanterns', plan.question);
    assert.equal((await read(done)).commission.status, 'pending');
    assert.equal((await ask('commission', 'dispatch', done)).status, 'accepted');
    const { commission, timeline } = await until(done, 'completed');
    assert.ok(commission.result_summary.includes(plan.found), commission.result_summary);
    const happened = timeline.map(entry => entry.event);
    for (const event of ['created', 'status_dispatched', 'status_in_progress', 'status_completed']) {
        assert.ok(happened.includes(event), happened.join(', '));
    }
});
await check('event subscribe', async () => {
    const begun = Date.now();
    while (!said.includes(`[completed] ${done}`)) {
        assert.ok(Date.now() - begun < PATIENCE, said);
        await pause(20);
    }
    for (const status of ['dispatched', 'in_progress']) {
        assert.ok(said.includes(`[${status}] ${done}`), said);
    }
});
events.kill();
await check('commission list, as JSON and as a table', async () => {
    const { commissions } = await ask('commission', 'list');
    assert.ok(commissions.some(one => one.commissionId === done));
    const { code, stdout } = await run('commission', 'list', '--tty');
    assert.equal(code, 0);
    assert.match(stdout, /ID +STATUS +WORKER +TITLE/);
    assert.ok(stdout.includes(done), stdout);
});
await check('commission read for people', async () => {
    const { code, stdout } = await run('commission', 'read', plan.project, done, '--tty');
    assert.equal(code, 0);
    assert.match(stdout, /Status: +completed/);
    assert.match(stdout, /Timeline:/);
});
await check('commission cancel, redispatch, cancel, abandon', async () => {
    const id = await create(plan.endless, 'Endless', ENDLESS);
    await ask('commission', 'dispatch', id);
    await until(id, 'in_progress');
    assert.equal((await ask('commission', 'cancel', id, '--reason=enough')).status, 'ok');
    const { timeline } = await until(id, 'cancelled');
    assert.equal(timeline.at(-1).reason, 'enough');
    assert.equal((await ask('commission', 'redispatch', id)).status, 'accepted');
    await until(id, 'in_progress');
    assert.match(await refused('commission', 'abandon', id, 'no more'), /Cancel it first/i);
    await ask('commission', 'cancel', id);
    await until(id, 'cancelled');
    assert.equal((await ask('commission', 'abandon', id, 'no more')).status, 'ok');
    await until(id, 'abandoned');
});
await check('commission update and note', async () => {
    const id = await create(plan.worker, 'Later', 'Something');
    assert.equal((await ask('commission', 'update', id, '--prompt=Something else')).status, 'ok');
    assert.equal((await ask('commission', 'note', id, 'A "note"\nof two lines')).status, 'ok');
    const { commission, timeline } = await read(id);
    assert.equal(commission.prompt, 'Something else');
    assert.deepEqual(timeline.at(-1).event, 'user_note');
    assert.equal(timeline.at(-1).reason, 'A "note"\nof two lines');
});
await check('commission deps check and graph', async () => {
    assert.equal((await ask('commission', 'deps', 'check', plan.project)).status, 'ok');
    const { nodes, edges } = await ask('commission', 'deps', 'graph', plan.project);
    assert.ok(nodes.some(node => node.id === done) && Array.isArray(edges));
});
await check('what is not there is said in words', async () => {
    assert.match(await refused('commission', 'read', plan.project, 'commission-x-20260101-000000'), /not found/);
    assert.match(await refused('commission', 'create', 'nowhere', plan.worker, 't', 'p'), /not found/);
    assert.match(await refused('commission', 'create', plan.project, 'nobody', 't', 'p'), /not found/);
    assert.match(await refused('commission', 'dispatch', done), /status is "completed"/);
});
await check('artifact list, read and save', async () => {
    const { artifacts } = await ask('artifact', 'list', plan.project);
    const record = `work/commissions/${done}.md`;
    assert.ok(artifacts.some(artifact => artifact.relativePath === record), JSON.stringify(artifacts));
    const artifact = await ask('artifact', 'read', plan.project, record);
    assert.equal(artifact.meta.status, 'completed');
    await ask('artifact', 'save', plan.project, 'harbour.md', '# The harbour\n');
    assert.equal((await ask('artifact', 'read', plan.project, 'harbour.md')).rawContent, '# The harbour\n');
});
await check('git lore status and commit', async () => {
    const status = await ask('git', 'lore', 'status', plan.project);
    assert.equal(typeof status.hasPendingChanges, 'boolean');
    assert.equal(typeof (await ask('git', 'lore', 'commit', plan.project, 'Note')).committed, 'boolean');
});
await check('the original\'s parsers read the records', async () => {
    const { parseActivityTimeline, scanCommissions } = await import(plan.parsers);
    const lore = join(plan.home, 'projects', plan.project, '.lore');
    const scanned = await scanCommissions(lore, plan.project);
    const { commissions } = await ask('commission', 'list');
    const key = one => one.commissionId;
    assert.deepEqual(scanned.map(key).sort(), commissions.map(key).sort());
    for (const one of scanned) {
        const ours = commissions.find(other => key(other) === key(one));
        for (const field of ['title', 'status', 'worker', 'workerDisplayTitle', 'prompt', 'dependencies', 'projectName', 'date',
            'relevantDate', 'result_summary', 'current_progress']) {
            assert.deepEqual(one[field], ours[field], `${key(one)}: ${field}`);
        }
    }
    const directory = join(lore, 'work', 'commissions');
    for (const file of readdirSync(directory)) {
        const raw = readFileSync(join(directory, file), 'utf8');
        const { timeline, rawContent } = await read(file.replace(/\.md$/, ''));
        assert.equal(rawContent, raw);
        assert.deepEqual(parseActivityTimeline(raw), timeline);
    }
});
end();
