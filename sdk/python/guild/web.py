"""The web, through the host."""

from wit_world.imports import web as _host

from .host import HostError, hosted

search = hosted(_host.search)
fetch = hosted(_host.fetch)

__all__ = ["HostError", "fetch", "search"]
