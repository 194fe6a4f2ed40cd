// The web, through the host.
import * as host from 'guild:worker/web@0.1.0';
import { hosted } from './errors.js';

export { HostError } from './errors.js';
export const search = hosted(host.search);
export const fetch = hosted(host.fetch);
