"""Errors of the host's functions."""

import functools

from componentize_py_types import Err

_SENTENCES = {
    "NotGranted": "not granted: {}",
    "OverLimit": "over a limit: {}",
    "NoJob": "this host function needs a job: call it in `run`, not in a plan or a tool call",
    "JobEnded": "the job is no longer running",
}


class HostError(Exception):
    """An error of a function of the host. It is an answer, not the end of the job: the worker may go on.

    `kind` is InvalidInput, NotGranted, OverLimit, NoJob, JobEnded or Unavailable.
    """

    def __init__(self, kind, text=""):
        super().__init__(_SENTENCES.get(kind, "{}").format(text))
        self.kind = kind


def hosted(function):
    """Makes a function of the host raise HostError, which has a text."""

    @functools.wraps(function)
    def call(*values):
        try:
            return function(*values)
        except Err as error:
            kind = type(error.value).__name__.rpartition("_")[2]
            raise HostError(kind, getattr(error.value, "value", "")) from None

    return call
