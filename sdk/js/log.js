// Lines for the job's log.
import { write } from 'guild:worker/log@0.1.0';

export const debug = (message) => write('debug', String(message));
export const info = (message) => write('info', String(message));
export const warn = (message) => write('warn', String(message));
export const error = (message) => write('error', String(message));
