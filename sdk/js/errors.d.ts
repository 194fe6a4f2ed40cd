/** Why a function of the host did not do what it was asked. */
export type HostErrorKind = 'invalid-input' | 'not-granted' | 'over-limit' | 'no-job' | 'job-ended' | 'unavailable';

/** An error of a function of the host. It is an answer, not the end of the job: the worker may go on. */
export class HostError extends Error {
  private constructor();
  /** The kind of error. The message is a sentence that names the argument, the grant or the limit. */
  readonly kind: HostErrorKind;
}
