"""Notes that outlast the job."""

from wit_world.imports import memory as _host
from wit_world.imports.types import Scope

from .host import HostError, hosted

store = hosted(_host.store)
load = hosted(_host.load)
entries = hosted(_host.list)
delete = hosted(_host.delete)

__all__ = ["HostError", "Scope", "delete", "entries", "load", "store"]
