/** The internal tools, on the job at hand. They exist in `run` only. */
export { HostError } from './errors.js';

/** A judgment call that the worker made on its own, for a person to review. */
export interface Decision {
  question: string;
  decision: string;
  reasoning: string;
}

/** Replaces the progress summary that the job's status shows; at most 64 KiB. */
export function updateSummary(summary: string): void;

/** Records a judgment call; at most 16 KiB. */
export function recordDecision(decision: Decision): void;

/** Logs a question that only a person can answer; at most 16 KiB. */
export function logQuestion(question: string): void;

/** Hands the result over, as Markdown. The last one while the job runs is the result. */
export function submitResult(output: string): void;

/** Writes a file below the job's artifacts: a text, or bytes. One that exists is replaced. */
export function writeArtifact(path: string, contents: string | Uint8Array): void;
