"""Guild Hall workers and toolboxes in Python.

A worker is a class `Dispatch` made of `guild.Worker`; one that carries its jobs out itself is made by
`guild.autonomous`, and tools by `guild.toolbox`. The functions of the host are in `guild.files`, `guild.memory`,
`guild.job`, `guild.web` and `guild.log`: import those that the manifest asks for.
"""

from .config import amount, count, flag, text
from .prompt import background, system_prompt
from .worker import Plan, Refusal, Unsupported, Worker, smaller

__all__ = [
    "Plan", "Refusal", "Unsupported", "Worker", "amount", "background", "count", "flag", "smaller", "system_prompt",
    "text",
]
