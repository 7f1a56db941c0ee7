"""The ``charioteer`` command."""

import sys
from typing import Any, cast

from cyclopts import App, Parameter

from app import __version__
from app.settings.model import ModelError
from app.settings.server import SettingsError
from tasks.inference.error import InferenceError

__all__ = ("main",)


def _shown_default(value: object) -> str | None:
    """Return a default as the help shows it: nothing for switches that are off, and for empty texts."""
    return None if value is None or value is False or value == "" else str(value)


cli = App(
    name="charioteer",
    help="Serve any vision model over standard inference protocols.",
    version=__version__,
    default_parameter=Parameter(show_env_var=False, show_default=_shown_default, negative_iterable=()),
)
# Commands are named, not imported, so that each command imports only what it needs.
cli.command("app.cli.serve:command", name="serve", help="Serve models over HTTP and gRPC until stopped.")
cli.command("app.cli.model.predict:predict", name="predict", help="Run a model on one image, without a server.")
cli.command(
    "app.cli.model.explain:explain", name="explain", help="Show which parts of an image led to a model's prediction."
)
cli.command("app.cli.model.models:models", name="models", help="List the models that `serve` would load.")
cli.command("app.cli.model.init:init", name="init", help="Create a folder with a starter Python model.")
cli.command("app.cli.model.export:export", name="export", help="Export a transformers model to ONNX and compare both.")
cli.command("app.cli.conform:conform", name="conform", help="Check any inference server against a protocol.")
cli.command("app.cli.model.check:check", name="check", help="Show how a model is interpreted, and try it once.")
cli.command("app.cli.model.tune:tune", name="tune", help="Find the set-up that serves a model best here.")
cli.command(
    "app.cli.model.quantize:quantize", name="quantize", help="Quantise an ONNX model to int8, as a new version."
)
cli.command("app.cli.recorded.inferences:inferences", name="inferences", help="Search and export recorded inferences.")
cli.command("app.cli.recorded.evaluate:evaluate", name="evaluate", help="Measure a model on labelled data.")
cli.command("app.cli.recorded.drift:drift", name="drift", help="Detect drift in a model's inputs and outputs.")
cli.command("app.cli.keys:keys", name="keys", help="Create, list and remove API keys.")
cli.command("app.cli.model.pack:pack", name="pack", help="Check a model and pack its folder into a .tar.gz.")
cli.command(
    "app.cli.model.manifest:manifest", name="manifest", help="Write the SHA-256 of a model's files into its folder."
)
cli.command(
    "app.cli.config:config", name="config", help="Show the options of `serve` and where their values come from."
)
cli.command("app.cli.env_schema:env_schema", name="env-schema", help="Print a JSON Schema of environment variables.")

cast("Any", cli).register_install_completion_command(help="Install completion for the shell: bash, zsh or fish.")


def main() -> None:
    """Run the command line. Print expected errors as one sentence, without a traceback."""
    try:
        cli()
    except (ModelError, SettingsError, InferenceError, OSError) as error:
        sys.exit(f"charioteer: {error}")
