"""Reads a config, and writes what the SDK for Python makes of it: `sdk/rust/tests/languages.rs`."""

import dataclasses
import importlib.util
import sys

# The package itself imports functions of the host.
spec = importlib.util.spec_from_file_location("config", sys.argv[1])
config = importlib.util.module_from_spec(spec)
spec.loader.exec_module(config)


@dataclasses.dataclass
class Fields:
    focus: str | None = None
    parallel: int = config.count(most=16)
    deep: bool | None = None


try:
    fields, bounds = config.read(sys.stdin.buffer.read().decode(), Fields)
except config.Invalid as refused:
    answer = str(refused)
else:
    numbers = [bounds.get(key, 0) for key in ("maxTurns", "maxBudgetUsd", "deadlineSeconds")]
    shown = " ".join(f"{number:.10g}" for number in numbers)
    answer = f"{shown} [{fields.focus or ''}] {fields.parallel or 0} {int(fields.deep or 0)}"
sys.stdout.buffer.write(answer.encode())
