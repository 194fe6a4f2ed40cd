"""Tools: functions with type hints, whose docstring says what they are for."""

import dataclasses
import json
import traceback

from componentize_py_types import Err
from wit_world.exports.toolbox import ToolError_Failed, ToolError_InvalidInput, ToolError_UnknownTool
from wit_world.imports.types import ToolDefinition

from .schema import definition, read

__all__ = ["InvalidInput", "Toolbox", "tool"]


class InvalidInput(Exception):
    """The error of an input that is not acceptable: where, and what would be."""


_tools = {}


def tool(function=None, *, read_only=False):
    """Offers a function as a tool."""

    def offer(function):
        _tools[function.__name__] = function, ToolDefinition(**definition(function, read_only))
        return function

    return offer(function) if function else offer


class Toolbox:
    """The export of a toolbox: import it into the module that is built."""

    def list_tools(self):
        """The tools; the host calls it."""
        return [listed for _, listed in _tools.values()]

    def call_tool(self, name, input):
        """Calls a tool; the host calls it."""
        if name not in _tools:
            raise Err(ToolError_UnknownTool(name))
        try:
            result = _tools[name][0](**read(input))
        except InvalidInput as why:
            raise Err(ToolError_InvalidInput(str(why))) from why
        except Exception as error:
            raise Err(ToolError_Failed("".join(traceback.format_exception(error)))) from error
        return json.dumps(dataclasses.asdict(result) if dataclasses.is_dataclass(result) else result)
