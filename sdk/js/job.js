// The internal tools, on the job at hand.
import * as host from 'guild:worker/job-tools@0.1.0';
import { hosted } from './errors.js';

export { HostError } from './errors.js';
export const updateSummary = hosted(host.updateSummary);
export const recordDecision = hosted(host.recordDecision);
export const logQuestion = hosted(host.logQuestion);
export const submitResult = hosted(host.submitResult);

const write = hosted(host.writeArtifact);

/** Writes a file below the job's artifacts: a text, or bytes. */
export function writeArtifact(path, contents) {
  write(path, typeof contents === 'string' ? new TextEncoder().encode(contents) : contents);
}
