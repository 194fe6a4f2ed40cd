/** An error of a function of the host. It is an answer, not the end of the job: the worker may go on. */
export class HostError extends Error {
  /** @param {string} kind @param {string} [text] */
  constructor(kind, text) {
    super(sentence(kind, text));
    this.name = 'HostError';
    this.kind = kind;
  }
}

function sentence(kind, text) {
  switch (kind) {
    case 'not-granted':
      return `not granted: ${text}`;
    case 'over-limit':
      return `over a limit: ${text}`;
    case 'no-job':
      return 'this host function needs a job: call it in `run`, not in a plan or a tool call';
    case 'job-ended':
      return 'the job is no longer running';
    default:
      return text;
  }
}

/** Makes a function of the host throw a HostError, which has a message and a stack. */
export function hosted(call) {
  return (...values) => {
    try {
      return call(...values);
    } catch (error) {
      const { tag, val } = error?.payload ?? error;
      if (typeof tag === 'string') throw new HostError(tag, val);
      throw error;
    }
  };
}

/** The message and the stack of what was thrown. */
export function told(error) {
  if (!(error instanceof Error)) return String(error);
  return error.stack ? `${error}\n${error.stack}` : String(error);
}
