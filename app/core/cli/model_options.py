"""Options of commands that load models."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

from app.core.plugins import registry

CommandT = TypeVar("CommandT", bound=Callable[..., None])


def takes_models(command: CommandT) -> CommandT:
    """Give the parameter `options` of a command, which is a `ModelOptions`, the options of plugins too."""
    kind: Any = registry().model_options_class
    signature = inspect.signature(command)
    options = signature.parameters["options"].replace(annotation=kind, default=kind())
    parameters = {**signature.parameters, "options": options}
    # The command line reads the annotations and the signature.
    described = cast("Any", command)
    described.__annotations__["options"] = kind
    described.__signature__ = signature.replace(parameters=list(parameters.values()))
    return command
