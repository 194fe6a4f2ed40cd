/** The web, through the host, to the hosts that were granted. */
export { HostError } from './errors.js';

/** One answer of a search. */
export interface Hit {
  /** The page's title. */
  title: string;
  /** Its address. */
  url: string;
  /** Some of its text. */
  snippet: string;
}

/** Searches; at most `limit` hits, best first. */
export function search(query: string, limit: number): Hit[];

/** A page's main text as Markdown. */
export function fetch(url: string): string;
