/** Reading local files below the granted read roots. A path is `<root's name>/<path in it>`. */
export { HostError } from './errors.js';

/** A line that matched. */
export interface Passage {
  /** The file. */
  path: string;
  /** The line's number, from 1. */
  line: number;
  /** The line. */
  text: string;
}

/** Lines `offset` to `offset + limit` of a text file, numbered from 1, each with its number before it. */
export function read(path: string, offset: number, limit: number): string;

/** At most `limit` lines that match a regular expression, in all files or in those whose path matches `glob`. */
export function grep(pattern: string, glob: string | undefined, limit: number): Passage[];

/** At most `limit` paths of files that match a glob (`*`, `?`, `[..]`, `{a,b}`, `**`), newest first. */
export function glob(pattern: string, limit: number): string[];
