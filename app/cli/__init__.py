"""The ``charioteer`` command."""

import sys

from cyclopts import App

from app import __version__
from app.settings.model import ModelError
from app.settings.server import SettingsError
from tasks.exchange.error import InferenceError

__all__ = ("main",)

cli = App(
    name="charioteer",
    help="Any vision model as a first-class inference engine.",
    version=__version__,
)
# Named rather than imported: each command needs other things, and a server should start fast.
cli.command("app.cli.serve:serve", name="serve", help="Serve models over HTTP and gRPC until told to stop.")
cli.command("app.cli.predict:predict", name="predict", help="Run a model on one image, here, without a server.")
cli.command("app.cli.explain:explain", name="explain", help="Show where in one image a model's reasons lie.")
cli.command("app.cli.models:models", name="models", help="List the models that would be served, and what each is.")
cli.command("app.cli.init:init", name="init", help="Make a folder with a Python model to begin with.")
cli.command("app.cli.export:export", name="export", help="Write a transformers model as ONNX, and compare the two.")
cli.command("app.cli.conform:conform", name="conform", help="Hold any engine against a protocol, clause by clause.")
cli.command("app.cli.check:check", name="check", help="Say how a model is understood, and what was guessed.")
cli.command("app.cli.tune:tune", name="tune", help="Find the batch size and threads that serve a model best here.")
cli.command("app.cli.inferences:inferences", name="inferences", help="Find and export what was recorded.")
cli.command("app.cli.evaluate:evaluate", name="evaluate", help="Measure a model on labelled data.")
cli.command("app.cli.drift:drift", name="drift", help="Say whether what a model sees and answers has changed.")
cli.command("app.cli.keys:keys", name="keys", help="Make, list and remove the keys that callers of a server show.")
cli.command("app.cli.pack:pack", name="pack", help="Check a model, and put it into the .tar.gz that platforms take.")
cli.command("app.cli.manifest:manifest", name="manifest", help="List a model's files and their SHA-256 in its folder.")
cli.command("app.cli.env_schema:env_schema", name="env-schema", help="Print a JSON Schema of the environment.")


def main() -> None:
    """Run the command line. What its user can mend is told in one sentence, without a traceback."""
    try:
        cli()
    except (ModelError, SettingsError, InferenceError, OSError) as error:
        sys.exit(f"charioteer: {error}")
