// A worker that carries its jobs out itself, with sessions of its own.
import { query, wait } from 'guild:worker/agent@0.1.0';
import { drain } from './promise.js';
import { hosted, told } from './errors.js';
import { schemaOf } from './fields.js';
import { activating, checked, smaller } from './worker.js';

export * from './fields.js';
export { Refusal, background, systemPrompt, unsupported } from './worker.js';

const waiting = [];
const start = hosted(query);

/** Runs an agent session to its end: how it ended, its last text, and what it used. */
export async function session({ activation, prompt, systemPrompt, tools = [], ownTools = {}, jobTools = false, model, bounds }) {
  const session = start({
    prompt,
    systemPrompt: systemPrompt ?? activation.posture,
    tools: tools.filter((tool) => activation.grantedTools.includes(tool)),
    jobTools,
    ownTools: Object.entries(ownTools).map(([name, tool]) => ({
      name,
      description: tool.description,
      inputSchema: JSON.stringify(schemaOf(tool.input ?? {})),
      readOnly: true,
    })),
    model,
    bounds: smaller(bounds, activation.bounds),
  });
  for (;;) {
    const step = hosted(() => session.next())();
    if (step.tag === 'pending') {
      await new Promise((resolve) => waiting.push({ session, resolve }));
      continue;
    }
    if (step.tag === 'ended') throw new Error('the session ended without a last text');
    const event = step.val;
    if (event.tag === 'call') {
      const content = await answer(ownTools, event.val);
      hosted(() => session.answer(event.val.id, content))();
    } else if (event.tag === 'finished') {
      return event.val;
    }
  }
}

async function answer(ownTools, { name, input }) {
  try {
    if (!Object.hasOwn(ownTools, name)) throw new Error(`there is no tool ${name}`);
    return { tag: 'ok', val: JSON.stringify(await ownTools[name].call(JSON.parse(input))) };
  } catch (error) {
    return { tag: 'err', val: error?.message ?? String(error) };
  }
}

const endings = {
  'max-turns': 'the session used up its turns',
  'max-budget': 'the session used up its budget',
  deadline: 'the session ran out of time',
  interrupted: 'the session was interrupted',
};

/** Runs an agent session to its end, and is its last text. Several may run side by side. */
export async function ask(options) {
  const { ending, text } = await session(options);
  if (ending === 'success' && text.trim()) return text;
  throw new Error(ending === 'error' ? text : (endings[ending] ?? 'the session ended without a text'));
}

/** Makes a worker that carries its jobs out itself: `export const { dispatch, run } = autonomous({...})`. */
export function autonomous({ config: fields = {}, run }) {
  return {
    dispatch: activating((activation, request) => {
      const [, asked] = checked(request, fields);
      return { tag: 'own-run', val: smaller(asked, activation.bounds) };
    }),
    run: {
      run(activation) {
        const { request } = activation.context.val;
        let outcome;
        const work = async () => run({ task: request.task, config: checked(request, fields)[0], activation });
        work().then((value) => (outcome = { value }), (error) => (outcome = { error }));
        // The engine's own promises go on only when an export has returned: see promise.js.
        for (drain(); !outcome; drain()) {
          if (waiting.length === 0) throw 'the worker waits for something that is not a session: it would never end';
          const ready = wait(waiting.map(({ session }) => session));
          [...ready].sort((a, b) => b - a).forEach((position) => waiting.splice(position, 1)[0].resolve());
        }
        if ('error' in outcome) throw told(outcome.error);
        return outcome.value;
      },
    },
  };
}
