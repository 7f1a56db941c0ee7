"""The ``charioteer`` command."""

import sys

from cyclopts import App

from app import __version__
from app.cli.check import check
from app.cli.models import models
from app.cli.predict import predict
from app.cli.serve import serve
from app.settings.model import ModelError
from app.settings.server import SettingsError
from tasks.exchange.error import InferenceError

__all__ = ("main",)

cli = App(
    name="charioteer",
    help="Any vision model as a first-class inference engine.",
    version=__version__,
)
cli.command(serve)
cli.command(predict)
cli.command(models)
cli.command(check)


def main() -> None:
    """Run the command line. What its user can mend is told in one sentence, without a traceback."""
    try:
        cli()
    except (ModelError, SettingsError, InferenceError, OSError) as error:
        sys.exit(f"charioteer: {error}")
