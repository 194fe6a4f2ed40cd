"""A worker that answers questions from the files that it may read."""

from dataclasses import dataclass

import guild


class Dispatch(guild.Worker):
    tools = ("Read", "Grep", "Glob")

    @dataclass
    class Config:
        focus: str | None = None

    def plan(self, activation, task, config):
        return guild.Plan(prompt=f"{task}\n\nConcentrate on: {config.focus}" if config.focus else task)
