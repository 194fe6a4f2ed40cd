// A worker whose sessions the host runs: it checks dispatches and plans them.
import { amount, count } from './fields.js';
import { systemPrompt } from './prompt.js';

export * from './fields.js';
export { background, systemPrompt } from './prompt.js';

/** The refusal of a dispatch. What else is thrown is a fault of the worker. */
export class Refusal extends Error {
  constructor(message, kind = 'invalid-config') {
    super(message);
    this.name = 'Refusal';
    this.kind = kind;
  }
}

/** The refusal of work that the worker does not do. */
export const unsupported = (message) => new Refusal(message, 'unsupported');

const bounds = { maxTurns: count(), maxBudgetUsd: amount(), deadlineSeconds: count() };

/** Checks the config of a dispatch key by key: `[config, bounds]`. */
export function checked(request, fields) {
  let values;
  try {
    values = JSON.parse(request.config);
  } catch {
    values = undefined;
  }
  if (typeof values !== 'object' || values === null || Array.isArray(values)) {
    throw new Refusal('config must be a JSON object');
  }
  const known = { ...bounds, ...fields };
  const take = (fields) => {
    const read = {};
    for (const [key, field] of Object.entries(fields)) {
      if (!Object.hasOwn(values, key)) continue;
      read[key] = field.read(values[key]);
      if (read[key] === undefined) {
        throw new Refusal(`config.${key} must be ${field.accepted}, not ${shown(values[key])}`);
      }
    }
    return read;
  };
  const asked = take(bounds);
  const config = take(fields);
  const unknown = Object.keys(values).filter((key) => !Object.hasOwn(known, key)).sort();
  if (unknown.length > 0) {
    const names = unknown.map((key) => JSON.stringify(key)).join(', ');
    const keys = unknown.length === 1 ? 'key' : 'keys';
    throw new Refusal(`config has the unknown ${keys} ${names}; known are ${Object.keys(known).join(', ')}`);
  }
  return [config, asked];
}

function shown(value) {
  const characters = [...JSON.stringify(value)];
  return characters.length > 80 ? `${characters.slice(0, 80).join('')}…` : characters.join('');
}

/** The smaller value of each bound; one that only one side sets applies. */
export function smaller(a = {}, b = {}) {
  const least = (key) => {
    if (a[key] === undefined || b[key] === undefined) return a[key] ?? b[key];
    return Math.min(a[key], b[key]);
  };
  return Object.fromEntries(Object.keys(bounds).map((key) => [key, least(key)]));
}

/** Makes `activate` of a function that plans: what it throws as a Refusal is one. */
export function activating(plan) {
  return {
    activate(activation) {
      try {
        if (activation.context.tag !== 'commission') {
          throw unsupported('this worker takes commissions, not meetings');
        }
        return plan(activation, activation.context.val.request);
      } catch (error) {
        if (error instanceof Refusal) throw { tag: error.kind, val: error.message };
        throw error;
      }
    },
  };
}

/** Makes a worker, to be exported as `dispatch`. */
export function worker({ config: fields = {}, tools = [], plan = () => ({}) }) {
  return activating((activation, request) => {
    const [config, asked] = checked(request, fields);
    const planned = plan({ task: request.task, config, activation }) ?? {};
    return {
      tag: 'session',
      val: {
        systemPrompt: planned.systemPrompt ?? systemPrompt(activation, request.task),
        prompt: planned.prompt ?? request.task,
        tools: tools.filter((tool) => activation.grantedTools.includes(tool)),
        toolboxTools: activation.toolboxTools.map((tool) => tool.name),
        model: planned.model,
        bounds: smaller(smaller(asked, planned.bounds), activation.bounds),
      },
    };
  });
}
