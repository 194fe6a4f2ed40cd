import type { Config, ConfigFields } from './fields.js';
import type { Activation, Bounds, BuiltInTool } from './types.js';

export * from './fields.js';
export type * from './types.js';

/** The refusal of a dispatch: throw it in `plan`. Anything else that `plan` throws is a fault of the worker. */
export class Refusal extends Error {
  /**
   * @param message The key that is not acceptable, and what would be.
   * @param kind `invalid-config` unless the worker does not do such work.
   */
  constructor(message: string, kind?: 'invalid-config' | 'unsupported');
  readonly kind: 'invalid-config' | 'unsupported';
}

/** The refusal of work that the worker does not do: throw it. The message describes the work that it does. */
export function unsupported(message: string): Refusal;

/** The system prompt of a session that has the internal tools: its background, and how to use these tools. */
export function systemPrompt(activation: Activation, task: string): string;

/** The background of every session: the worker's identity, its project, its task, and its memories. */
export function background(activation: Activation, task: string): string;

/** How the session of a job is to run. */
export interface Plan {
  /** The message that starts the session; the task if it is absent. */
  prompt?: string | undefined;
  /** Posture, task, memories, and how to use the internal tools if it is absent. */
  systemPrompt?: string | undefined;
  /** The preferred model; a runtime without a choice of models ignores it. */
  model?: string | undefined;
  /** Bounds that narrow those of the job. */
  bounds?: Bounds | undefined;
}

/** What a plan is made from. */
export interface Dispatch<All> {
  /** The whole task. */
  task: string;
  /** The checked config. */
  config: Config<All>;
  /** All that the host gives to the worker. */
  activation: Activation;
}

/** The export `dispatch` of a component. */
export interface DispatchExport {
  activate(activation: Activation): unknown;
}

/**
 * Makes a worker whose sessions the host runs, to be exported as `dispatch`.
 *
 * The bounds `maxTurns`, `maxBudgetUsd` and `deadlineSeconds` of a config are taken besides `config`; other keys are
 * refused by name.
 */
export function worker<All extends ConfigFields = {}>(options: {
  /** The keys of a dispatch's config. */
  config?: All;
  /** The built-in tools that sessions are given, as far as they were granted. */
  tools?: readonly BuiltInTool[];
  /** Plans the session of a job; it is called in `activate`, within 10 seconds. */
  plan?(dispatch: Dispatch<All>): Plan | undefined | void;
}): DispatchExport;
