"""The ``charioteer`` command."""

import os
import sys
from functools import cache
from typing import Any, cast

from cyclopts import App, Parameter

from app import __version__
from app.core.cli.interruption import exit_interrupted
from app.core.plugins import VARIABLE, PluginError, registry
from app.core.settings.environment import check_finite
from app.core.settings.model import ModelError
from app.core.settings.server import SettingsError
from tasks.inference.error import InferenceError

__all__ = ("main",)


def _shown_default(value: object) -> str | None:
    """Return a default as the help shows it: nothing for switches that are off, and for empty texts."""
    if isinstance(value, tuple):
        return " ".join(map(str, cast("tuple[object, ...]", value)))
    return None if value is None or value is False or value == "" else str(value)


@cache
def command_line() -> App:
    """Return ``charioteer`` with the commands of core and of all plugins.

    Raises:
        PluginError: if a plugin cannot be loaded.
    """
    app = App(
        name="charioteer",
        help="Serve any vision model over standard inference protocols.",
        version=__version__,
        config=check_finite,
        default_parameter=DEFAULTS,
        suppress_keyboard_interrupt=False,
    )
    for plugin in registry().loaded.values():
        for command in plugin.commands:
            # Commands are named, not imported, so that each command imports only what it needs.
            app.command(command.run, name=command.name, help=command.help)
    return app


DEFAULTS = Parameter(show_env_var=False, show_default=_shown_default, negative_iterable=())


def main() -> None:
    """Run the command line. Print expected errors as one sentence, without a traceback."""
    try:
        _enable_plugins(sys.argv)
        cli = command_line()
        name = sys.argv[1] if len(sys.argv) > 1 else ""
        if registry().owner("command", name) is not None and cli[name].default_command is not None:
            # The line of the list would replace the docstring, which also lists exit statuses.
            cli[name].help = None
        else:
            # Other commands start faster without it.
            cast("Any", cli).register_install_completion_command(
                help="Install completion for the shell: bash, zsh or fish."
            )
        cli()
    except KeyboardInterrupt:
        exit_interrupted()
    except (ModelError, PluginError, SettingsError, InferenceError, OSError) as error:
        sys.exit(f"charioteer: {error}")


def _enable_plugins(arguments: list[str]) -> None:
    """Move `--plugins` before the command, as in ``charioteer --plugins acme hello``, into the environment.

    After the name of a command it is an option of that command, and is only read here, because plugins decide which
    options there are.
    """
    for index, argument in enumerate(arguments):
        option, separator, value = argument.partition("=")
        if option == "--plugins":
            os.environ[VARIABLE] = value if separator else "".join(arguments[index + 1 : index + 2])
            if index == 1:
                del arguments[1 : 2 if separator else 3]
            return
