"""Lines for the job's log."""

from wit_world.imports import log as _host


def debug(message):
    _host.write(_host.Level.DEBUG, str(message))


def info(message):
    _host.write(_host.Level.INFO, str(message))


def warn(message):
    _host.write(_host.Level.WARN, str(message))


def error(message):
    _host.write(_host.Level.ERROR, str(message))
