"""Reading local files below the granted read roots."""

from wit_world.imports import files as _host

from .host import HostError, hosted

read = hosted(_host.read)
grep = hosted(_host.grep)
glob = hosted(_host.glob)

__all__ = ["HostError", "glob", "grep", "read"]
