"""The values of options that plugins add to commands."""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, TypeVar

OptionsT = TypeVar("OptionsT")

_values: ContextVar[Mapping[type, Any]] = ContextVar("command options", default=MappingProxyType({}))


@contextmanager
def command_values(values: Mapping[type, Any]) -> Generator[None]:
    """While entered, let `command_options` return these options, by their class."""
    token = _values.set(values)
    try:
        yield
    finally:
        _values.reset(token)


def command_options(kind: type[OptionsT]) -> OptionsT:
    """Return the options of the running command, of a class that a plugin lists in `Plugin.command_options`.

    Commands and servers without them, other threads, and other processes have the defaults.
    """
    return _values.get().get(kind) or kind()
