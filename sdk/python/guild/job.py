"""The internal tools, on the job at hand."""

from wit_world.imports import job_tools as _host
from wit_world.imports.types import Decision

from .host import HostError, hosted

update_summary = hosted(_host.update_summary)
log_question = hosted(_host.log_question)
submit_result = hosted(_host.submit_result)
_record, _write = hosted(_host.record_decision), hosted(_host.write_artifact)


def record_decision(question, decision, reasoning):
    """Records a judgment call, for a person to review."""
    _record(Decision(question, decision, reasoning))


def write_artifact(path, contents):
    """Writes a file below the job's artifacts: a text, or bytes."""
    _write(path, contents.encode() if isinstance(contents, str) else contents)


__all__ = ["HostError", "log_question", "record_decision", "submit_result", "update_summary", "write_artifact"]
