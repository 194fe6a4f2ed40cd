import type { ConfigFields, Tool } from './fields.js';
import type { Activation, Bounds, BuiltInTool } from './types.js';
import type { Dispatch, DispatchExport } from './worker.js';

export * from './fields.js';
export type * from './types.js';
export { Refusal, background, systemPrompt, unsupported } from './worker.js';
export type { Dispatch, DispatchExport } from './worker.js';

/** The options of an agent session. */
export interface SessionOptions {
  /** The activation of the job, which `run` is given. */
  activation: Activation;
  /** The message that starts the session. */
  prompt: string;
  /** The agent's identity and its way of working; the member's posture if it is absent. */
  systemPrompt?: string | undefined;
  /** Built-in tools, as far as they were granted. */
  tools?: readonly BuiltInTool[];
  /**
   * Tools that the worker answers, by their names; `call` may be async, and the model is told the message of an error.
   * The manifest asks for them: `"agent": {"ownTools": true}`.
   */
  ownTools?: Record<string, Tool<any, any>>;
  /** Whether the session may call the internal tools on this job; false if it is absent. */
  jobTools?: boolean;
  /** The preferred model. */
  model?: string | undefined;
  /** The bounds of the session, within what is left of the job's. */
  bounds?: Bounds | undefined;
}

/** How a session ended. */
export type Ending = 'success' | 'max-turns' | 'max-budget' | 'deadline' | 'interrupted' | 'error';

/** What a session used. */
export interface Usage {
  turns: number;
  /** Tokens sent. */
  inputTokens: bigint;
  /** Tokens sent that the provider had in its cache. */
  cachedTokens: bigint;
  /** Tokens received. */
  outputTokens: bigint;
  /** US dollars; absent if the model's price is not known. */
  costUsd?: number;
}

/** The end of a session. */
export interface Finish {
  ending: Ending;
  /** The agent's last text, or the reason if `ending` is `error`. */
  text: string;
  usage: Usage;
}

/** Runs an agent session to its end: how it ended, its last text, and what it used. */
export function session(options: SessionOptions): Promise<Finish>;

/**
 * Runs an agent session to its end, and resolves to its last text; where there is none, it rejects with the reason.
 * Sessions run side by side, as in `Promise.all([ask(...), ask(...)])`.
 */
export function ask(options: SessionOptions): Promise<string>;

/** The export `run` of a component. */
export interface RunExport {
  run(activation: Activation): string;
}

/**
 * Makes a worker that carries its jobs out itself: `export const { dispatch, run } = autonomous({...})`.
 *
 * `config` is as for `worker`. What `run` resolves to is the job's result; a rejection fails the job.
 */
export function autonomous<All extends ConfigFields = {}>(options: {
  /** The keys of a dispatch's config. */
  config?: All;
  /** Carries the job out. Wait for sessions only: a component has no timers. */
  run(dispatch: Dispatch<All>): string | Promise<string>;
}): { dispatch: DispatchExport; run: RunExport };
