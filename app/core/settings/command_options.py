"""The values of options that plugins add to commands."""

from typing import Any, TypeVar

OptionsT = TypeVar("OptionsT")

VALUES: dict[type, Any] = {}
"""The options of the running command, by their class."""


def command_options(kind: type[OptionsT]) -> OptionsT:
    """Return the options of the running command, of a class that a plugin lists in `Plugin.command_options`.

    Commands and servers without them, and other processes, have the defaults.
    """
    return VALUES.get(kind) or kind()
