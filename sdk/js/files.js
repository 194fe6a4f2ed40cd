// Reading local files below the granted read roots.
import * as host from 'guild:worker/files@0.1.0';
import { hosted } from './errors.js';

export { HostError } from './errors.js';
export const read = hosted(host.read);
export const grep = hosted(host.grep);
export const glob = hosted(host.glob);
