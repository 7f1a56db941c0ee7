"""The ``charioteer`` command."""

import os
import sys
import tomllib
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from cyclopts import (
    App,
    CycloptsError,
    Group,
    MissingArgumentError,
    Parameter,
    RepeatArgumentError,
    UnknownCommandError,
    UnknownOptionError,
    UnusedCliTokensError,
)

from app import __version__
from app.core.cli.interruption import exit_interrupted
from app.core.engine.error_text import sentence_of
from app.core.plugin_loading import VARIABLE, PluginError
from app.core.plugins import registry
from app.core.removed import removed_advice
from app.core.settings.environment import HELP_FLAGS, check_values, drop_empty_variables
from app.core.settings.files import read_regular_file
from app.core.settings.model import ModelError
from app.core.settings.server import SettingsError
from tasks.inference.error import InferenceError

__all__ = ("main",)

EXPECTED_ERRORS = (ModelError, PluginError, SettingsError, InferenceError, OSError)
"""Errors that end a command with one sentence."""

_HELP = """Serve any vision model over standard inference protocols.

To start: `charioteer serve --demo`, then open <http://127.0.0.1:8080>."""
_GROUPS = {name: Group(name, sort_key=order) for order, name in enumerate(("Serve", "Model", "Answers", "Others"))}


def _shown_default(value: object) -> str | None:
    """Return a default as the help shows it: nothing for switches that are off, and for empty texts."""
    if isinstance(value, tuple):
        return " ".join(map(str, cast("tuple[object, ...]", value)))
    return None if value is None or value is False or value == "" else str(value)


def command_line() -> App:
    """Return ``charioteer`` with the commands of core and of all plugins.

    Raise PluginError if a plugin cannot be loaded.
    """
    app = App(
        name="charioteer",
        help=_HELP,
        help_flags=HELP_FLAGS,
        version=__version__,
        config=(drop_empty_variables, check_values),
        default_parameter=DEFAULTS,
        suppress_keyboard_interrupt=False,
    )
    app["--help"].group = app["--version"].group = _GROUPS["Others"]
    for name, command in registry().commands.items():
        # Commands are named, not imported, so that each command imports only what it needs.
        app.command(command.run.target, name=name, help=command.help, group=_GROUPS[command.group])
    return app


DEFAULTS = Parameter(show_env_var=False, show_default=_shown_default, negative_iterable=())


def main() -> None:
    """Run the command line. Print expected errors as one sentence, without a traceback."""
    try:
        _enable_plugins(sys.argv)
        if advice := _removed_value(sys.argv[1:]):
            sys.stderr.write(f"charioteer: {advice}\n")
            sys.exit(2)
        cli = command_line()
        name = sys.argv[1] if len(sys.argv) > 1 else ""
        if name in registry().commands and cli[name].default_command is not None:
            # The line of the list would replace the docstring, which also lists exit statuses.
            cli[name].help = None
        else:
            # Other commands start faster without it.
            cast("Any", cli).register_install_completion_command(
                help="Install completion for the shell: bash, zsh or fish.", group=_GROUPS["Others"]
            )
        _point_to_rare_options(cli, sys.argv[1:])
        cli(exit_on_error=False, print_error=False)
    except KeyboardInterrupt:
        exit_interrupted()
    except CycloptsError as error:
        sys.stderr.write(f"charioteer: {_sentence(error)}\n")
        if isinstance(error, UnknownCommandError | UnknownOptionError):
            _print_advice(error, sys.argv[1:])
        # With 1, a mistyped option would look like a failed check, or like drift.
        sys.exit(2)
    except EXPECTED_ERRORS as error:
        sys.exit(f"charioteer: {sentence_of(error)}")


def _point_to_rare_options(cli: App, words: Sequence[str]) -> None:
    """End the help of a command with how to list the options that it leaves out."""
    if set(HELP_FLAGS).isdisjoint(words):
        return
    chain, apps, _ = cli.parse_commands([word for word in words if word not in HELP_FLAGS])
    app = apps[-1]
    if app.default_command and any(item.parameter.show is False for item in app.assemble_argument_collection()):
        more = f"More options: `charioteer {' '.join(chain)} --help-all`."
        app.help_epilogue = f"{app.help_epilogue}\n\n{more}" if app.help_epilogue else more


def _sentence(error: CycloptsError) -> str:
    """Return an error of the command line as one sentence; a missing value is named as users write it."""
    error.verbose = False
    if isinstance(error, RepeatArgumentError):
        option = error.token.keyword
        more = "; to serve several models, put them into one folder and use --model-repository FOLDER"
        return f"{option} is given more than once{more if option == '--model' else '; give it once'}"
    command = " ".join(("charioteer", *(error.command_chain or ())))
    if isinstance(error, UnusedCliTokensError):
        return f"Unexpected argument: {' '.join(error.unused_tokens or ())}; `{command} --help` lists the arguments"
    if not isinstance(error, MissingArgumentError) or error.argument is None:
        text = str(error)
        return text if text.endswith("...") else text.removesuffix(".")
    name = error.argument.name
    problem = "needs a value" if name in (error.root_input_tokens or ()) else "is missing"
    return f"{name} {problem}; `{command} --help` describes it"


def _print_advice(error: UnknownCommandError | UnknownOptionError, words: Sequence[str]) -> None:
    """Say what replaces a removed command or option, or which plugins that are not loaded may have it."""
    # Options in the file of `--config` are called `[name]`.
    token = (error.token.keyword or error.token.value) if isinstance(error, UnknownOptionError) else ""
    options = [f"--{word.partition('=')[0].strip('-[]').replace('_', '-')}" for word in (*words, token)]
    if advice := removed_advice(words[0], *(f"{words[0]} {option}" for option in options)):
        sys.stderr.write(f"{advice}\n")
        return
    # Another plugin cannot explain a mistyped word.
    if "Did you mean" not in str(error):
        for name, reason in registry().unused().items():
            sys.stderr.write(f"The plugin {name} is not loaded: {reason}\n")


def _removed_value(words: Sequence[str]) -> str:
    """Return what replaces a value of an option that was removed; "" if there is none."""
    words = " ".join(words).replace("=", " ").split()
    return removed_advice(*(f"{words[0]} {option} {value}" for option, value in pairwise(words[1:])))


def _enable_plugins(arguments: list[str]) -> None:
    """Name the enabled plugins in the environment, before commands and options are known, which plugins add to.

    They come from ``--plugins``, from the environment, or from the file of ``--config``. An option before the command,
    as in ``charioteer --plugins acme hello``, is removed; the others are read again with the options of the command.
    """
    names = _value(arguments, "--plugins")
    file = _value(arguments, "--config") or os.environ.get("CHARIOTEER_CONFIG")
    if names is None and file and not os.environ.get(VARIABLE):
        # An unreadable file is reported by the command that reads all of it.
        with suppress(OSError, ValueError):
            names = tomllib.loads(read_regular_file(Path(file)).decode()).get("plugins")
    if isinstance(names, str):
        os.environ[VARIABLE] = names
    if len(arguments) > 1 and arguments[1].partition("=")[0] == "--plugins":
        del arguments[1 : 2 if "=" in arguments[1] else 3]


def _value(arguments: Sequence[str], option: str) -> str | None:
    """Return the value of an option on the command line, or None."""
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        name, separator, value = argument.partition("=")
        if name == option:
            return value if separator else following
    return None
