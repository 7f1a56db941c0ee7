"""Run a model in its own process, so that a crash or a hung call does not affect the server."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.settings.model import ModelSource

if TYPE_CHECKING:
    from app.engine.models.model_metadata import ModelMetadata
    from app.engine.models.servable import Servable

__all__ = ("OnProcessLost", "describe_in_subprocess", "load_in_subprocess")

OnProcessLost = Callable[[ModelSource, str], None]
"""Called for each process that is lost, with its model and a short reason."""


def load_in_subprocess(
    source: ModelSource, load: "Callable[[ModelSource], Servable]", on_lost: OnProcessLost | None = None
) -> "Servable":
    """Load the model at `source` with `load` in a separate process, and restart that process whenever it ends.

    Args:
        source: the model.
        load: a module-level function, which the process imports.
        on_lost: called for each process that ends unexpectedly or is killed.

    Raises:
        ModelError: if `load` raises, or the process ends.
    """
    from app.runtimes.subprocess.loading import bind

    return bind(source, load, on_lost)


def describe_in_subprocess(source: ModelSource, describe: "Callable[[ModelSource], ModelMetadata]") -> "ModelMetadata":
    """Return the result of `describe` for the model at `source`, called in a short-lived process.

    Raises:
        ModelError: if `describe` raises, or the process ends.
    """
    from app.runtimes.subprocess.process import run_in_process

    return run_in_process(source, describe)
