"""Environment variables, help and numbers of options."""

import math
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

from cyclopts import App, ArgumentCollection, Group, Parameter, Token, ValidationError

# Groups of the help, in this order.
MODELS = Group("Models", sort_key=1)
NETWORK = Group("Network", sort_key=2)
ACCESS = Group("Access", sort_key=3)
TLS = Group("TLS", sort_key=4)
LIMITS = Group("Limits", sort_key=5)
LOGGING = Group("Logging", sort_key=9)

HELP_FLAGS = ("--help", "-h", "--help-all")
RARE = Parameter(show=None if "--help-all" in sys.argv else False)
"""Options that `--help-all` lists, and `--help` does not."""


def environment(*names: str, **parameter: Any) -> Parameter:
    """Return a parameter that reads an option from environment variables; the first one that is set wins.

    `serve --help` lists the options with ``show=True``, `--help-all` lists all.
    """
    return Parameter(env_var=names, **parameter)


def drop_empty_variables(_: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Read an empty environment variable as one that is not set: Compose writes ``${NAME:-}`` as one."""
    for argument in arguments:
        if [(token.source, token.value) for token in argument.tokens] == [("env", "")]:
            names = [name for name in argument.parameter.env_var or () if os.environ.get(name)]
            argument.tokens[:] = [Token(keyword=name, value=os.environ[name], source="env") for name in names[:1]]


def check_values(_: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Reject empty paths, infinite numbers, and fractions for whole numbers, of every source.

    An empty path would be the current folder, validators of a range accept infinity, and fractions would be rounded.

    Raise ValidationError naming the option and its value.
    """
    for argument in arguments:
        types = (argument.hint, *get_args(argument.hint))
        for token in argument.tokens:
            if Path in types and not token.value:
                message = "Expected a path; `.` is the current folder."
                raise ValidationError(exception_message=message, argument=argument, value="")
            with suppress(ValueError):
                value = float(token.value)
                if float in types and not math.isfinite(value):
                    message = "Expected a finite number."
                elif int in types and not value.is_integer():
                    message = "Expected a whole number."
                else:
                    continue
                raise ValidationError(exception_message=message, argument=argument, value=value)
