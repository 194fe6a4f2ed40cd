// Notes that outlast the job.
import * as host from 'guild:worker/memory@0.1.0';
import { hosted } from './errors.js';

export { HostError } from './errors.js';
export const store = hosted(host.store);
export const load = hosted(host.load);
export const list = hosted(host.list);
export const remove = hosted(host.delete);
