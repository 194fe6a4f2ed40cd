// The web UI of the original Guild Hall, as it is built for its users, in a real browser, against a hall of ours. What it is
// asked of is in a plan, whose file is the first argument; see `xtask/src/clients/guild_hall.rs`. A check is told as `checks.mjs`
// does.
//
// The UI asks its daemon at the socket in its home. Between it and the host's socket stands a relay that notes each request with
// the status of its answer, so that what a page hides is seen, too.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import { createServer, request as httpRequest } from 'node:http';
import { createRequire } from 'node:module';
import { join } from 'node:path';

import { check as told, end, plan } from '../checks.mjs';

const { chromium } = createRequire(join(plan.packages, 'index.js'))('playwright-core');

/** Something that takes long takes no longer. */
const PATIENCE = 30_000;
/** The browser reaches nothing but this machine, and is nobody's. */
const QUIET = [
    '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
    '--disable-component-update', '--disable-sync', '--disable-dev-shm-usage',
];

const check = (name, carryOut) => told('Guild Hall', 'browser', name, carryOut);
const home = join(plan.directory, 'web');
const shots = join(plan.directory, 'screenshots');
mkdirSync(home, { recursive: true });
mkdirSync(shots, { recursive: true });

/** What the daemon was asked: {method, path, status, error}. */
const asked = [];

/** Relays each request to the host's socket. */
async function relay() {
    const server = createServer((from, to) => {
        const { pathname } = new URL(from.url, 'http://daemon');
        const noted = { asked: `${from.method} ${pathname}`, url: from.url };
        asked.push(noted);
        const onward = httpRequest({
            socketPath: join(plan.home, 'guild-hall.sock'), method: from.method, path: from.url, headers: from.headers,
        });
        onward.on('response', answer => {
            noted.status = answer.statusCode;
            noted.body = '';
            answer.on('data', piece => answer.statusCode >= 400 && (noted.body += piece));
            to.writeHead(answer.statusCode, answer.headers);
            to.flushHeaders();
            answer.pipe(to);
            answer.on('error', () => to.destroy());
        });
        onward.on('error', error => {
            noted.failed = `${error}`;
            to.destroy();
        });
        to.on('close', () => onward.destroy());
        from.pipe(onward);
    });
    await new Promise((resolve, reject) => {
        server.once('error', reject);
        server.listen(join(home, 'guild-hall.sock'), resolve);
    });
    return server;
}

/** Serves the UI; its address. It ends with this process. */
function serve() {
    const env = { ...process.env, GUILD_HALL_HOME: home, NEXT_TELEMETRY_DISABLED: '1' };
    const words = [join(plan.packages, 'node_modules/next/dist/bin/next'), 'start', 'apps/web', '-H', '127.0.0.1', '-p', '0'];
    const server = spawn(plan.node, words, { cwd: plan.site, env, stdio: ['ignore', 'pipe', 'inherit'] });
    process.on('exit', () => server.kill());
    let said = '';
    return new Promise((resolve, reject) => {
        server.stdout.on('data', piece => {
            said += piece;
            process.stderr.write(piece);
            const address = said.match(/http:\/\/127\.0\.0\.1:\d+/)?.[0];
            if (address && said.includes('Ready')) resolve(address);
        });
        server.on('exit', code => reject(new Error(`the web UI ended with ${code}: ${said}`)));
    });
}

const relaying = await relay();
const site = await serve();
const browser = await chromium.launch({ executablePath: plan.browser, args: QUIET });
const context = await browser.newContext({ viewport: { width: 1280, height: 1000 } });
context.setDefaultTimeout(PATIENCE);
const page = await context.newPage();
/** What pages threw, and what they could not load. */
const broken = [];
page.on('pageerror', error => broken.push(`${page.url()}: ${error}`));
page.on('response', answer => {
    if (answer.status() >= 400) broken.push(`${answer.status()} ${answer.url()}`);
});

const project = `/projects/${plan.project}`;
const visit = path => page.goto(`${site}${path}`);
const link = name => page.getByRole('link', { name });
const button = name => page.getByRole('button', { name });
let shot = 0;
const look = name => page.screenshot({ path: join(shots, `${String(++shot).padStart(2, '0')}-${name}.png`), fullPage: true });

/** Carries a step of a flow out: no page fails, and the daemon is asked for nothing that is not there. */
async function step(name, carryOut) {
    const from = [asked.length, broken.length];
    await check(name, async () => {
        try {
            await carryOut();
        } finally {
            await look(name.replaceAll(/[^a-z0-9]+/gi, '-').slice(0, 60));
        }
        const refused = asked.slice(from[0]).filter(({ status, failed }) => failed || status >= 400);
        assert.deepEqual(refused, []);
        assert.deepEqual(broken.slice(from[1]), []);
    });
}

await step('the dashboard lists the project and what there is to do in it', async () => {
    await visit('/');
    await page.getByText('Active Projects').waitFor();
    await page.locator(`a[href="/?project=${plan.project}"]`).waitFor();
    await page.getByText('No active meetings.').waitFor();
    await page.getByText('3 requested').waitFor();
    await page.getByText('Last updated').waitFor();
});

/** Loads the page until something is on it. */
async function again(isThere, what) {
    const begun = Date.now();
    while (!(await isThere())) {
        assert.ok(Date.now() - begun < PATIENCE, what);
        await page.reload();
    }
}

let commission;
await step('a commission is made by the form, which lists the workers', async () => {
    await visit(`${project}?tab=commissions`);
    await button('Create Commission').click();
    const form = page.getByRole('form', { name: 'Create Commission' });
    await form.getByLabel('Title').fill('Lanterns');
    const workers = form.getByLabel('Worker');
    await workers.locator(`option[value="${plan.worker}"]`).waitFor({ state: 'attached' });
    assert.ok((await workers.locator('option').count()) > 1);
    await workers.selectOption(plan.worker);
    await form.getByLabel('Prompt').fill(plan.question);
    await form.getByRole('button', { name: 'Create Commission' }).click();
    await form.waitFor({ state: 'detached' });
    await link('Lanterns').click();
    await page.waitForURL('**/commissions/commission-*');
    commission = new URL(page.url()).pathname.split('/').at(-1);
    await page.getByText(plan.question).first().waitFor();
});

await step('it is dispatched, and its result is shown', async () => {
    await button('Dispatch Commission').click();
    await button('Dispatch Commission').waitFor({ state: 'detached' });
    await again(() => page.getByText(plan.found).count(), 'the commission has a result');
});

await step('the project lists its commissions', async () => {
    await visit(`${project}?tab=commissions`);
    // It is completed a moment after it has a result: once its branch is merged.
    const isCompleted = async () => {
        await page.getByRole('checkbox', { name: /completed/i }).check();
        return /completed/i.test(await link('Lanterns').innerText());
    };
    await again(isCompleted, 'the commission is completed');
});

await step('the project lists its artifacts, and one is opened and edited', async () => {
    await visit(project);
    await button('Tree View').click();
    await link(/harbour/i).click();
    await page.waitForURL('**/artifacts/harbour.md');
    await page.getByText('freezes over in January').waitFor();
    await button('Edit').click();
    const text = '# The harbour\n\nThe harbour of Vellmar freezes over in February.\n';
    await page.locator('textarea').fill(text);
    await button('Save').click();
    await page.getByText('freezes over in February').waitFor();
    await button('Edit').waitFor();
    await page.reload();
    await page.getByText('freezes over in February').waitFor();
});

await step('an artifact that is an image is shown', async () => {
    await visit(`${project}/artifacts/lantern.svg`);
    const image = page.getByRole('img', { name: 'lantern.svg' });
    await image.waitFor();
    await page.waitForFunction(() => document.querySelector('img[alt="lantern.svg"]')?.naturalWidth === 17);
});

await step('an artifact that is a mockup is shown, and cannot reach the page', async () => {
    await visit(`${project}/artifacts/mockup.html`);
    const opened = context.waitForEvent('page');
    await button('Open Preview').click();
    const preview = await opened;
    await preview.getByText('from a script').waitFor();
    assert.equal(await preview.evaluate('window.origin'), 'null');
    await preview.close();
});

await step('the record of a commission is an artifact, too', async () => {
    await visit(`${project}/artifacts/work/commissions/${commission}.md`);
    await page.getByText(plan.found).first().waitFor();
});

/** A meeting that somebody asked for, on the dashboard. */
const request = agenda => page.getByTestId('meeting-request-card').filter({ hasText: agenda });
const said = () => page.locator('[class*="bubble" i] [class*="content" i]');
const answers = () => page.locator('[class*="assistantBubble"]');
let meeting;

await step('a meeting is opened by the form, and its first turn is shown', async () => {
    await visit(`${project}?tab=meetings`);
    await button('Request Audience').click();
    const form = page.getByRole('dialog', { name: 'Start Audience' });
    await form.getByRole('option').filter({ hasText: /researcher/i }).click();
    await form.getByLabel('Agenda').fill(plan.question);
    await form.getByRole('button', { name: 'Start Audience' }).click();
    await page.waitForURL('**/meetings/audience-*');
    meeting = new URL(page.url()).pathname.split('/').at(-1);
    await said().filter({ hasText: plan.question }).first().waitFor();
    await answers().first().waitFor();
});

await step('what is said is answered, as it comes', async () => {
    const before = await answers().count();
    await page.getByPlaceholder('Speak to the guild worker...').fill('When does the harbour freeze over?');
    await button('Send message').click();
    await said().filter({ hasText: 'When does the harbour freeze over?' }).first().waitFor();
    await answers().nth(before).waitFor();
    assert.match(await answers().nth(before).innerText(), /harbour of Vellmar freezes over/);
    await button('Send message').waitFor();
});

await step('a page that is left in the middle of a turn has what was said, and then the answer', async () => {
    const before = await answers().count();
    await page.getByPlaceholder('Speak to the guild worker...').fill('Where are lanterns sold?');
    const sent = page.waitForRequest('**/messages');
    await button('Send message').click();
    await sent;
    await page.reload();
    await said().filter({ hasText: 'Where are lanterns sold?' }).first().waitFor();
    await again(async () => (await answers().count()) > before, 'the turn goes on without its page');
    assert.match(await answers().nth(before).innerText(), /by the dozen/);
});

await step('the meeting is on the dashboard and in the project', async () => {
    await visit('/');
    await page.locator(`a[href$="/meetings/${meeting}"]`).waitFor();
    await visit(`${project}?tab=meetings`);
    await page.locator(`a[href$="/meetings/${meeting}"]`).click();
    await page.waitForURL(`**/meetings/${meeting}`);
});

await step('it is closed, and its notes are shown, and kept as an artifact', async () => {
    await button('Close Audience').first().click();
    const notes = page.getByRole('dialog', { name: 'Meeting notes' });
    await notes.getByRole('heading', { name: 'Audience Notes' }).waitFor();
    const text = await notes.innerText();
    assert.match(text, /harbour/);
    await notes.getByRole('link', { name: /Back to/ }).click();
    await visit(`${project}?tab=meetings`);
    await page.locator(`a[href$="/artifacts/work/meetings/${meeting}.md"]`).click();
    await page.getByText('When does the harbour freeze over?').first().waitFor();
    await visit(`${project}/meetings/${meeting}`);
    await page.getByText('This audience has ended.').waitFor();
});

await step('a meeting that was asked for is put off', async () => {
    await visit('/');
    const card = request('the winter');
    await card.getByRole('button', { name: 'Defer' }).click();
    await card.getByLabel('Defer until date').fill('2030-01-31');
    await card.getByRole('button', { name: 'Confirm' }).click();
    await card.getByText('Deferred until 2030-01-31').waitFor();
});

await step('one is declined', async () => {
    await request('the market').getByRole('button', { name: 'Ignore' }).click();
    await request('the market').waitFor({ state: 'detached' });
});

await step('one becomes a commission', async () => {
    const card = request('the brass');
    await card.getByRole('button', { name: 'Quick Comment' }).click();
    await card.getByLabel('Commission prompt').fill('Of what are the lanterns?');
    await card.getByRole('button', { name: 'Send' }).click();
    await page.waitForURL('**/commissions/commission-*');
    await page.getByText('Of what are the lanterns?').first().waitFor();
    await visit('/');
    await request('the brass').waitFor({ state: 'detached' });
});

await step('one is accepted, and begins', async () => {
    await request('the winter').getByRole('button', { name: 'Open' }).click();
    await page.waitForURL('**/meetings/*');
    await answers().first().waitFor();
    await page.reload();
    await answers().first().waitFor();
});

await step('an issue is made by the form, and is an artifact of the project', async () => {
    await visit(project);
    await button('New Issue').click();
    await page.getByLabel('Title').fill('The lamp is out');
    await page.getByLabel('Body (optional)').fill('Nobody lit it.');
    await button('Create Issue').click();
    await page.getByText('Issue created: the-lamp-is-out').waitFor();
    await visit(`${project}/artifacts/work/issues/the-lamp-is-out.md`);
    await page.getByText('Nobody lit it.').first().waitFor();
});

await step('the standing orders are given to the manager by the button of the project', async () => {
    await visit('/');
    const ticked = page.waitForResponse('**/api/heartbeat/*/tick');
    await button('Tick Now (1)').click();
    assert.equal((await ticked).status(), 200);
    await visit(`${project}?tab=commissions`);
    await link(/Heartbeat/).first().waitFor();
});

await browser.close();
relaying.close();
end();
