"""A worker that knows the headings of the files that it may read, and a tool that lists them."""

from dataclasses import dataclass
from typing import Annotated

import guild
from guild.files import grep
from guild.toolbox import Toolbox, tool


@dataclass
class Heading:
    path: Annotated[str, "The file"]
    line: Annotated[int, "The number of the line, from 1"]
    text: Annotated[str, "The heading, with its `#`"]


@dataclass
class Headings:
    headings: list[Heading]


@tool(read_only=True)
def headings(files: Annotated[str, "The files, as a glob; all Markdown if it is left out"] = "**/*.md") -> Headings:
    """Lists the headings of Markdown files, to find where to read."""
    return Headings([Heading(at.path, at.line, at.text) for at in grep("^#{1,3} ", files, 200)])


class Dispatch(guild.Worker):
    tools = ("Read", "Grep", "Glob")

    def plan(self, activation, task, config):
        lines = [f"\n{at.path}:{at.line}: {at.text}" for at in headings().headings]
        prompt = guild.system_prompt(activation, task)
        return guild.Plan(system_prompt=f"{prompt}\n\n# Headings of the files\n{''.join(lines)}")
