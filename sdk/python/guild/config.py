"""Checks a dispatch's config key by key. Every error names the key and what is accepted."""

import dataclasses
import json
import math
import types
import typing


class Invalid(Exception):
    """A config that is not acceptable."""


def text(doc=None):
    """A text that is not blank; the default of `str`."""
    return dataclasses.field(default=None, metadata={"kind": _text, "doc": doc})


def count(doc=None, *, most=None):
    """A whole number from 1 on; the default of `int`."""
    return dataclasses.field(default=None, metadata={"kind": _count(most), "doc": doc})


def amount(doc=None):
    """A number above 0; the default of `float`."""
    return dataclasses.field(default=None, metadata={"kind": _amount, "doc": doc})


def flag(doc=None):
    """True or false; the default of `bool`."""
    return dataclasses.field(default=None, metadata={"kind": _flag, "doc": doc})


def _text(value):
    return "a text that is not empty", value.strip() or None if isinstance(value, str) else None


def _count(most=None):
    accepted = f"a whole number from 1 to {most}" if most else "a whole number, 1 or more"

    def read(value):
        # 3.0 is a whole number, as in JSON Schema.
        is_whole = type(value) is int or (type(value) is float and value.is_integer())
        return accepted, int(value) if is_whole and 1 <= value <= (most or 2**32 - 1) else None

    return read


def _amount(value):
    fits = type(value) in (int, float) and math.isfinite(value) and value > 0
    return "a number above 0", float(value) if fits else None


def _flag(value):
    return "true or false", value if isinstance(value, bool) else None


_KINDS = {str: _text, int: _count(), float: _amount, bool: _flag}
_BOUNDS = {"maxTurns": _count(), "maxBudgetUsd": _amount, "deadlineSeconds": _count()}


def _kind(hint):
    """What reads a value of this type; `str | None` is as `str`."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        hint = next(part for part in typing.get_args(hint) if part is not type(None))
    if hint not in _KINDS:
        raise TypeError(f"a config's key cannot be of the type {hint}: use str, int, float or bool")
    return _KINDS[hint]


def read(config, of):
    """Reads a request's config into a dataclass: `(config, bounds)`, the bounds by their names in the config."""
    try:
        values = json.loads(config)
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise Invalid("config must be a JSON object")
    hints = typing.get_type_hints(of)
    fields = {field.name: field.metadata.get("kind") or _kind(hints[field.name]) for field in dataclasses.fields(of)}
    bounds = _take(values, _BOUNDS)
    taken = _take(values, fields)
    if values:
        keys = "key" if len(values) == 1 else "keys"
        names = ", ".join(json.dumps(name, ensure_ascii=False) for name in sorted(values))
        raise Invalid(f"config has the unknown {keys} {names}; known are {', '.join([*_BOUNDS, *fields])}")
    return of(**taken), bounds


def _take(values, kinds):
    taken = {}
    for key, kind in kinds.items():
        if key not in values:
            continue
        value = values.pop(key)
        accepted, read = kind(value)
        if read is None:
            raise Invalid(f"config.{key} must be {accepted}, not {_shown(value)}")
        taken[key] = read
    return taken


def _shown(value):
    short = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return short if len(short) <= 80 else short[:80] + "…"
