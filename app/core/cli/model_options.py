"""Options of commands that load models."""

import inspect
from collections.abc import Callable
from typing import Annotated, Any, TypeVar, cast

from cyclopts import Parameter

from app.core.plugins import registry

CommandT = TypeVar("CommandT", bound=Callable[..., None])


def takes_models(command: CommandT) -> CommandT:
    """Give the parameter `options` of a command, which is a `ModelOptions`, the options of plugins too.

    The help of the command lists only those that the help of ``serve`` lists.
    """
    kind: Any = registry().model_options_class
    annotation = Annotated[kind, Parameter(show=False)]
    signature = inspect.signature(command)
    options = signature.parameters["options"].replace(annotation=annotation, default=kind())
    parameters = {**signature.parameters, "options": options}
    # The command line reads the annotations and the signature.
    described = cast("Any", command)
    described.__annotations__["options"] = annotation
    described.__signature__ = signature.replace(parameters=list(parameters.values()))
    return command
