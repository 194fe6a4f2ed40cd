"""Makes JSON Schemas of type hints."""

import dataclasses
import inspect
import json
import types
import typing

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}


def of(hint):
    """The schema of a type; `Annotated[T, "text"]` describes it, and a dict there adds keywords."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        schema = of(arguments[0])
        for extra in arguments[1:]:
            schema |= {"description": extra} if isinstance(extra, str) else extra
        return schema
    if hint in _TYPES:
        return {"type": _TYPES[hint]}
    if origin in (types.UnionType, typing.Union):
        return of(next(part for part in arguments if part is not type(None)))
    if origin is typing.Literal:
        return {"enum": list(arguments)}
    if origin is list:
        return {"type": "array", "items": of(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": of(arguments[1])}
    if dataclasses.is_dataclass(hint):
        hints = typing.get_type_hints(hint, include_extras=True)
        fields = dataclasses.fields(hint)
        required = [field.name for field in fields if _is_required(field)]
        return _object({field.name: of(hints[field.name]) for field in fields}, required)
    raise TypeError(f"there is no JSON Schema of {hint}")


def _is_required(field):
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _object(properties, required):
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def definition(function, read_only):
    """The definition of a tool: its name, its docstring, and the schemas of its hints."""
    hints = typing.get_type_hints(function, include_extras=True)
    parameters = inspect.signature(function).parameters.values()
    required = [parameter.name for parameter in parameters if parameter.default is parameter.empty]
    schema = _object({parameter.name: of(hints[parameter.name]) for parameter in parameters}, required)
    result = of(hints["return"]) if dataclasses.is_dataclass(hints.get("return")) else None
    return {
        "name": function.__name__,
        "title": None,
        "description": inspect.getdoc(function) or "",
        "input_schema": json.dumps(schema),
        "output_schema": json.dumps(result) if result else None,
        "read_only": read_only,
    }


def read(text):
    """Reads an input. 3.0 is an integer, as in JSON Schema."""
    return json.loads(text, parse_float=_number)


def _number(text):
    number = float(text)
    # Larger numbers are not exact.
    return int(number) if number.is_integer() and abs(number) <= 2**53 else number
