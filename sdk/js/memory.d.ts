/** Notes that outlast the job: plain text, each under a key. */
import type { Scope } from './types.js';

export { HostError } from './errors.js';
export type { Scope } from './types.js';

/** A memory without its text. */
export interface Entry {
  key: string;
  /** The size of the text in bytes. */
  bytes: bigint;
  /** The time at which it was written: RFC 3339 in UTC. */
  modified: string;
}

/** Writes a memory; an existing key is overwritten. Keys match `[A-Za-z0-9_-]{1,64}`. */
export function store(scope: Scope, key: string, content: string): void;

/** The text under a key; undefined if there is no such memory. */
export function load(scope: Scope, key: string): string | undefined;

/** All memories of a scope, newest first. */
export function list(scope: Scope): Entry[];

/** Removes a memory; false if there was none. */
export function remove(scope: Scope, key: string): boolean;
