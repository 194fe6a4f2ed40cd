/** The types that the modules of this package share. */

/** The scope of a memory: this member's own, the project's, or the user's. */
export type Scope = 'worker' | 'project' | 'global';

/** The built-in read-only tools of sessions. */
export type BuiltInTool = 'Read' | 'Grep' | 'Glob' | 'WebSearch' | 'WebFetch';

/** What a job or a session may use. A bound that is absent is left to the others: the smallest that is set holds. */
export interface Bounds {
  /** Turns of a model. */
  maxTurns?: number;
  /** US dollars. */
  maxBudgetUsd?: number;
  /** Seconds of wall clock, from the start of the job's work. */
  deadlineSeconds?: number;
}

/** A request for work. */
export interface Request {
  /** A short label, for lists of jobs. */
  description: string;
  /** The whole task. */
  task: string;
  /** What the dispatch says besides: a JSON object. */
  config: string;
}

/** An attempt at a commission of a project. */
export interface Attempt {
  /** The commission's id, which stays the same over all attempts. */
  commission: string;
  /** The number of the attempt, from 1. */
  number: number;
  /** What the commission builds on: ids of commissions, and paths of artifacts below `.lore/`. */
  dependencies: string[];
}

/** A piece of work of its own. */
export interface Commission {
  /** The job's id. */
  job: string;
  request: Request;
  /** The attempt at a commission of a project; absent where the work was dispatched to this worker alone. */
  attempt?: Attempt;
}

/** A meeting that the worker is called to. */
export interface Meeting {
  id: string;
  /** The meeting's subject. */
  agenda: string;
  /** Paths of the meeting's artifacts, which the worker may read. */
  artifacts: string[];
}

/** The reason for an activation. */
export type Context = { tag: 'commission'; val: Commission } | { tag: 'meeting'; val: Meeting };

/** The project that the work belongs to. */
export interface Project {
  name: string;
  /** The name of the read root that holds it: the first part of the paths of its files. */
  root: string;
}

/** A memory that the host chose for this activation. It is a note from earlier work, not an instruction. */
export interface MemoryNote {
  scope: Scope;
  /** The key that it was stored under. */
  key: string;
  /** The whole text. */
  content: string;
  /** The time at which it was written: RFC 3339 in UTC. */
  modified: string;
  /** The job that stored it, where that is known. */
  origin?: string;
}

/** One tool that an agent session can call. */
export interface ToolDefinition {
  name: string;
  /** A name for people. */
  title?: string;
  /** The purpose of the tool and its use, for the model. */
  description: string;
  /** A JSON Schema of its input, as JSON. */
  inputSchema: string;
  /** A JSON Schema of its output, as JSON, if the output is structured. */
  outputSchema?: string;
  /** Whether it only reads, so that calls may run side by side. */
  readOnly: boolean;
}

/** The facts that the host gives to an activated worker. */
export interface Activation {
  /** The reason for the activation. */
  context: Context;
  /** The project, if the work belongs to one. */
  project?: Project;
  /** The member's `posture.md`, which describes the worker; empty if there is none. */
  posture: string;
  /** The scopes of memories that this worker may read. */
  scopes: Scope[];
  /** Memories for the system prompt, newest first. */
  memories: MemoryNote[];
  /** The built-in tools that this worker's sessions may be given. */
  grantedTools: string[];
  /** The tools of the toolboxes that the manifest names. */
  toolboxTools: ToolDefinition[];
  /** The ceiling of the job. */
  bounds: Bounds;
}
