"""Options that plugins add to commands of core and of other plugins."""

import inspect
from collections import Counter
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, cast

from cyclopts import App

from app.core.hooks import Ref
from app.core.plugin_loading import PluginError
from app.core.plugins import registry
from app.core.settings.command_options import command_values


def with_options(command: Callable[..., Any], kinds: Sequence[type]) -> Callable[..., Any]:
    """Return a command with the options of these classes too, whose values `command_options` returns while it runs."""

    @wraps(command)
    def run(*arguments: Any, **values: Any) -> Any:
        with command_values({kind: values.pop(kind.__name__, None) or kind() for kind in kinds}):
            return command(*arguments, **values)

    added = [
        inspect.Parameter(kind.__name__, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind | None)
        for kind in kinds
    ]
    cast("Any", run).__signature__ = inspect.Signature([*inspect.signature(command).parameters.values(), *added])
    return run


def _without_conflicts(command: Callable[..., Any], kinds: Sequence[type]) -> Callable[..., Any]:
    """Return `with_options`. Raise PluginError if the command has an option twice."""
    run = with_options(command, kinds)
    (app := App()).default(run)
    names = Counter(name for argument in app.assemble_argument_collection() for name in argument.names)
    for name, count in names.items():
        if name.startswith("--") and count > 1:
            raise PluginError(f"the command has the option {name} already; plugins add {kinds}")
    return run


def __getattr__(name: str) -> Any:
    """Return the command `name`, a function or an `App`, with the options that plugins add to it and its subcommands.

    The command line imports it from here when it runs, so that other commands start faster.
    """
    if name not in registry().commands:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    command = Ref[Any](registry().commands[name].run).load()
    for path, kinds in registry().command_options.items():
        first, _, subcommand = path.partition(" ")
        if first != name:
            continue
        if not isinstance(command, App):
            command = _without_conflicts(command, kinds)
            continue
        app: Any = command[subcommand] if subcommand in command else command  # noqa: SIM401  it is no dictionary
        if app is command and (subcommand or app.default_command is None):
            raise PluginError(f"there is no command {path} with options; plugins add {kinds}")
        app.default_command = _without_conflicts(app.default_command, kinds)
    return command
