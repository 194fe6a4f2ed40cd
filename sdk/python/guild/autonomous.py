"""Workers that carry their jobs out themselves, with sessions of their own.

`run` is a coroutine of asyncio: `asyncio.gather`, task groups and semaphores work as everywhere, so that sessions run
side by side. While all that it waits for are sessions the component sleeps in the host.
"""

import asyncio
import dataclasses
import json
import time
import traceback

from componentize_py_types import Err, Ok
from wit_world.imports import agent as _agent
from wit_world.imports.types import Activation, ToolDefinition

from .host import HostError, hosted
from .schema import definition, read
from .worker import checked, own_run, smaller

__all__ = ["HostError", "ask", "autonomous", "session"]

_query = hosted(_agent.query)
_waiting = {}


class _Selector:
    """What an event loop asks for what happened."""

    def select(self, timeout):
        if timeout == 0:
            return []
        if not _waiting:
            if timeout is None:
                raise RuntimeError("the worker waits for something that is not a session: it would never end")
            time.sleep(timeout)
            return []
        futures = list(_waiting)
        return [futures[position] for position in _agent.wait([_waiting[future] for future in futures])]


class _Loop(asyncio.BaseEventLoop):
    """An event loop that sleeps for sessions."""

    def __init__(self):
        super().__init__()
        self._selector = _Selector()

    def _process_events(self, futures):
        for future in futures:
            del _waiting[future]
            if not future.done():
                future.set_result(None)

    def _write_to_self(self):
        """Nothing else runs that could wake it."""


async def session(activation, prompt, *, system_prompt=None, tools=(), own_tools=(), job_tools=False, model=None, bounds=None):
    """Runs an agent session to its end: how it ended, its last text, and what it used.

    `own_tools` are functions, as of `guild.toolbox.tool`, which may be coroutines; the model is told what they raise.
    """
    own = {function.__name__: function for function in own_tools}
    options = _agent.Options(
        prompt=prompt,
        system_prompt=activation.posture if system_prompt is None else system_prompt,
        tools=[tool for tool in tools if tool in activation.granted_tools],
        job_tools=job_tools,
        own_tools=[ToolDefinition(**definition(function, read_only=True)) for function in own_tools],
        model=model,
        bounds=smaller(bounds, activation.bounds) if bounds else activation.bounds,
    )
    with _query(options) as running:
        while True:
            step = hosted(running.next)()
            if isinstance(step, _agent.Step_Pending):
                future = asyncio.get_running_loop().create_future()
                _waiting[future] = running
                try:
                    await future
                finally:
                    _waiting.pop(future, None)
            elif isinstance(step, _agent.Step_Ended):
                raise RuntimeError("the session ended without a last text")
            elif isinstance(step.value, _agent.Event_Call):
                call = step.value.value
                hosted(running.answer)(call.id, await _answer(own, call))
            elif isinstance(step.value, _agent.Event_Finished):
                return step.value.value


async def _answer(own, call):
    try:
        if call.name not in own:
            raise LookupError(f"there is no tool {call.name}")
        answer = own[call.name](**read(call.input))
        if asyncio.iscoroutine(answer):
            answer = await answer
        return Ok(json.dumps(dataclasses.asdict(answer) if dataclasses.is_dataclass(answer) else answer))
    except Exception as error:
        return Err(str(error) or type(error).__name__)


_ENDINGS = {
    "MAX_TURNS": "the session used up its turns",
    "MAX_BUDGET": "the session used up its budget",
    "DEADLINE": "the session ran out of time",
    "INTERRUPTED": "the session was interrupted",
}


async def ask(activation, prompt, **options):
    """Runs an agent session to its end, and is its last text; its options are those of `session`."""
    end = await session(activation, prompt, **options)
    if end.ending.name == "SUCCESS" and end.text.strip():
        return end.text
    raise RuntimeError(end.text if end.ending.name == "ERROR" else _ENDINGS.get(end.ending.name, "the session ended without a text"))


@dataclasses.dataclass
class _Nothing:
    """The config of a worker without one."""


def autonomous(run, of=_Nothing):
    """Makes a worker of a coroutine `run(activation, task, config)`: `Dispatch, Run = autonomous(run, Config)`."""

    class Dispatch:
        def activate(self, activation: Activation):
            return own_run(activation, of)

    class Run:
        def run(self, activation: Activation):
            loop = _Loop()
            asyncio.set_event_loop(loop)
            try:
                request, config, _ = checked(activation, of)
                return loop.run_until_complete(run(activation, request.task, config))
            except Exception as error:
                raise Err("".join(traceback.format_exception(error))) from error

    return Dispatch, Run
