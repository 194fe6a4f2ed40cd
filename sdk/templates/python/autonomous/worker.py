"""A worker that asks each file one question, with a session for each, side by side."""

import asyncio
from dataclasses import dataclass

import guild
from guild.autonomous import ask, autonomous
from guild.files import glob


@dataclass
class Config:
    files: str = "**/*.md"
    most: int = guild.count(most=20)


async def run(activation, task, config):
    async def section(path):
        # A session that fails is a sentence in the report, not the end of the job.
        try:
            answer = await ask(activation, f"{task}\nSource: `{path}`", tools=("Read", "Grep", "Glob"))
        except Exception as error:
            answer = f"No answer: {error}"
        return f"# {path}\n\n{answer}"

    paths = glob(config.files, config.most or 5)
    if not paths:
        raise ValueError(f"no file matches {config.files}")
    return "\n\n".join(await asyncio.gather(*map(section, paths)))


Dispatch, Run = autonomous(run, Config)
