/** Lines for the job's log; during a plan and in a tool call, for the host's. */

/** Details for the worker's author. */
export function debug(message: unknown): void;

/** The progress of the work. */
export function info(message: unknown): void;

/** An unusual condition. */
export function warn(message: unknown): void;

/** A failure. */
export function error(message: unknown): void;
