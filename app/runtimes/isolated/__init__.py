"""Run a model in its own process, so that a crash or a hung call does not affect the server."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.settings.model import ModelSource

if TYPE_CHECKING:
    from app.engine.description import ModelDescription
    from app.engine.servable import Servable

__all__ = ("Lost", "describe_isolated", "load_isolated")

Lost = Callable[[ModelSource, str], None]
"""Called for each process that is lost, with its model and a short reason."""


def load_isolated(
    source: ModelSource, load: "Callable[[ModelSource], Servable]", lost: Lost | None = None
) -> "Servable":
    """Load the model at `source` with `load` in a separate process, and restart that process whenever it ends.

    Args:
        source: the model.
        load: a module-level function, which the process imports.
        lost: called for each process that ends unexpectedly or is killed.

    Raises:
        ModelError: if `load` raises, or the process ends.
    """
    from app.runtimes.isolated.loading import bind

    return bind(source, load, lost)


def describe_isolated(source: ModelSource, describe: "Callable[[ModelSource], ModelDescription]") -> "ModelDescription":
    """Return the result of `describe` for the model at `source`, called in a short-lived process.

    Raises:
        ModelError: if `describe` raises, or the process ends.
    """
    from app.runtimes.isolated.process import in_process

    return in_process(source, describe)
