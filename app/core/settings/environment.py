"""Environment variables, help and numbers of options."""

import math
from contextlib import suppress
from typing import Any, get_args

from cyclopts import App, ArgumentCollection, Group, Parameter, ValidationError

# Groups of the help, in this order.
MODELS = Group("Models", sort_key=1)
NETWORK = Group("Network", sort_key=2)
ACCESS = Group("Access", sort_key=3)
TLS = Group("TLS", sort_key=4)
LIMITS = Group("Limits", sort_key=5)
LOGGING = Group("Logging", sort_key=9)


def environment(*names: str, **parameter: Any) -> Parameter:
    """Return a parameter that reads an option from environment variables; the first one that is set wins.

    `serve --help` lists the options with ``show=True``, `serve --help-all` lists all.
    """
    return Parameter(env_var=names, **parameter)


def check_finite(_: App, __: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Reject infinity and NaN for numbers of every source; validators of a range accept infinity.

    Raise ValidationError naming the option and its value.
    """
    for argument in arguments:
        if float in (argument.hint, *get_args(argument.hint)):
            for token in argument.tokens:
                with suppress(ValueError):
                    if not math.isfinite(value := float(token.value)):
                        message = "Expected a finite number."
                        raise ValidationError(exception_message=message, argument=argument, value=value)
