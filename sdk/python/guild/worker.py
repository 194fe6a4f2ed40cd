"""Workers whose sessions the host runs: they check dispatches and plan them."""

import dataclasses

from componentize_py_types import Err
from wit_world.imports.types import (
    Activation,
    Bounds,
    Context_Commission,
    Plan_OwnRun,
    Plan_Session,
    Refusal_InvalidConfig,
    Refusal_Unsupported,
    SessionPlan,
)

from .config import Invalid, read
from .prompt import system_prompt


class Refusal(Exception):
    """The refusal of a config that is not acceptable: the key, and what would be."""


class Unsupported(Exception):
    """The refusal of work that the worker does not do: what it does."""


@dataclasses.dataclass
class Plan:
    """How the session of a job is to run. What is left out is as in the comments."""

    prompt: str | None = None  # the task
    system_prompt: str | None = None  # posture, task, memories, and how to use the internal tools
    model: str | None = None  # the operator's
    bounds: Bounds | None = None  # the job's


def smaller(*all):
    """The smallest value of each bound; None where none sets it."""

    def least(name):
        return min((value for bounds in all if (value := getattr(bounds, name)) is not None), default=None)

    return Bounds(least("max_turns"), least("max_budget_usd"), least("deadline_seconds"))


class Worker:
    """A worker: `class Dispatch(Worker)`, with a dataclass `Config` for the config, `tools` and `plan`."""

    #: Built-in tools that its sessions are given, as far as they were granted.
    tools: tuple[str, ...] = ()

    @dataclasses.dataclass
    class Config:
        """The keys of a dispatch's config; there is none."""

    def plan(self, activation, task, config):
        """Plans the session of a job. What it raises as a Refusal or as Unsupported is one."""
        return Plan()

    def activate(self, activation: Activation):
        """Checks a dispatch, and plans it; the host calls it."""
        try:
            request, config, asked = checked(activation, self.Config)
            plan = self.plan(activation, request.task, config)
        except Unsupported as why:
            raise Err(Refusal_Unsupported(str(why))) from why
        except (Invalid, Refusal) as why:
            raise Err(Refusal_InvalidConfig(str(why))) from why
        return Plan_Session(
            SessionPlan(
                system_prompt=plan.system_prompt or system_prompt(activation, request.task),
                prompt=plan.prompt or request.task,
                tools=[tool for tool in self.tools if tool in activation.granted_tools],
                toolbox_tools=[tool.name for tool in activation.toolbox_tools],
                model=plan.model,
                bounds=smaller(asked, plan.bounds or asked, activation.bounds),
            )
        )


def checked(activation, of):
    """The request of a commission, its config, and the bounds that it asks for."""
    if not isinstance(activation.context, Context_Commission):
        raise Unsupported("this worker takes commissions, not meetings")
    request = activation.context.value.request
    config, asked = read(request.config, of)
    bounds = Bounds(asked.get("maxTurns"), asked.get("maxBudgetUsd"), asked.get("deadlineSeconds"))
    return request, config, bounds


def own_run(activation, of):
    """The plan of a job that the component carries out itself."""
    try:
        _, _, asked = checked(activation, of)
    except Unsupported as why:
        raise Err(Refusal_Unsupported(str(why))) from why
    except Invalid as why:
        raise Err(Refusal_InvalidConfig(str(why))) from why
    return Plan_OwnRun(smaller(asked, activation.bounds))
