"""Options of commands that load models."""

import inspect
import os
from collections.abc import Callable, Collection
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

from cyclopts import Parameter

from app.core.plugins import registry
from app.core.settings.environment import MODELS, RARE
from app.core.settings.server import ModelOptions, SettingsError

MODEL_PATH = Parameter(
    show=True,
    group=MODELS,
    help="Model to serve: a file such as best.onnx or model.py, its folder, or a folder of models.",
)
CommandT = TypeVar("CommandT", bound=Callable[..., None])


def takes_models(command: CommandT) -> CommandT:
    """Give the parameter `options` of a command, which is a `ModelOptions`, the options of plugins too.

    Its help lists the options that the help of ``serve`` lists, and ``--help-all`` lists all.
    """
    kind: Any = registry().model_options
    annotation = Annotated[kind, RARE]
    signature = inspect.signature(command)
    options = signature.parameters["options"].replace(annotation=annotation, default=kind())
    parameters = {**signature.parameters, "options": options}
    # The command line reads the annotations and the signature.
    described = cast("Any", command)
    described.__annotations__["options"] = annotation
    described.__signature__ = signature.replace(parameters=list(parameters.values()))
    return command


def with_path(models: ModelOptions, path: Path | None) -> ModelOptions:
    """Return the options with the PATH of a command line. Raise SettingsError if they already name models."""
    if path is None:
        return models
    if models.demo or models.model is not None or models.model_repository is not None:
        raise SettingsError("Use one of PATH, --model, --model-repository and --demo")
    return replace(models, model_dir=path)


def given_options(*groups: Any, apart_from: Collection[str] = ()) -> dict[str, object]:
    """Return the options in objects of option classes that the command line sets, by their names such as ``--model``.

    The variables of a server may be set where a command runs, so options from the environment are left out.
    """
    given: dict[str, object] = {}
    for group in groups:
        for option in fields(group):
            value, default = getattr(group, option.name), option.default
            if default is MISSING and option.default_factory is not MISSING:
                default = option.default_factory()
            variables = [name for part in getattr(option.type, "__metadata__", ()) for name in part.env_var or ()]
            if option.name not in apart_from and value != default and not any(map(os.environ.get, variables)):
                given[f"--{option.name.replace('_', '-')}"] = value
    return given
