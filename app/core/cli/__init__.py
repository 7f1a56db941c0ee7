"""The ``charioteer`` command."""

import sys
from typing import Any, cast

from cyclopts import App, Parameter

from app import __version__
from app.core.cli.interruption import exit_interrupted
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


cli = App(
    name="charioteer",
    help="Serve any vision model over standard inference protocols.",
    version=__version__,
    config=check_finite,
    default_parameter=Parameter(show_env_var=False, show_default=_shown_default, negative_iterable=()),
    suppress_keyboard_interrupt=False,
)
_COMMANDS = (
    ("app.core.cli.serve:command", "serve", "Serve models over HTTP and gRPC until stopped."),
    ("app.plugins.authoring.predict:predict", "predict", "Run a model on one image, without a server."),
    (
        "app.plugins.explanations.command:explain",
        "explain",
        "Show which parts of an image led to a model's prediction.",
    ),
    ("app.core.cli.check:models", "models", "List the models that `serve` would load."),
    ("app.plugins.authoring.init:init", "init", "Create a folder with a starter Python model."),
    ("app.plugins.torch.command:export", "export", "Export a transformers model to ONNX and compare both."),
    ("app.plugins.conformance.command:conform", "conform", "Check any inference server against a protocol."),
    ("app.core.cli.check:check", "check", "Show how a model is interpreted, and try it once."),
    ("app.plugins.tuning.command:tune", "tune", "Find the set-up that serves a model best here."),
    ("app.plugins.torch.command:quantize", "quantize", "Quantise an ONNX model to int8, as a new version."),
    ("app.plugins.recording.command:inferences", "inferences", "Search and export recorded inferences."),
    ("app.plugins.evaluation.command:evaluate", "evaluate", "Measure a model on labelled data."),
    ("app.plugins.drift.command:drift", "drift", "Detect drift in a model's inputs and outputs."),
    ("app.core.cli.keys:keys", "keys", "Create, list and remove API keys."),
    ("app.plugins.authoring.pack:pack", "pack", "Check a model and pack its folder into a .tar.gz."),
    ("app.plugins.authoring.pack:manifest", "manifest", "Write the SHA-256 of a model's files into its folder."),
    ("app.core.cli.config:config", "config", "Show the options of `serve` and where their values come from."),
    ("app.core.cli.config:env_schema", "env-schema", "Print a JSON Schema of environment variables."),
)
for _target, _name, _help in _COMMANDS:
    # Commands are named, not imported, so that each command imports only what it needs.
    cli.command(_target, name=_name, help=_help)


def main() -> None:
    """Run the command line. Print expected errors as one sentence, without a traceback."""
    name = sys.argv[1] if len(sys.argv) > 1 else ""
    if name in {name for _, name, _ in _COMMANDS} and cli[name].default_command is not None:
        # The line of the list would replace the docstring, which also lists exit statuses.
        cli[name].help = None
    else:
        # Other commands start faster without it.
        cast("Any", cli).register_install_completion_command(
            help="Install completion for the shell: bash, zsh or fish."
        )
    try:
        cli()
    except KeyboardInterrupt:
        exit_interrupted()
    except (ModelError, SettingsError, InferenceError, OSError) as error:
        sys.exit(f"charioteer: {error}")
