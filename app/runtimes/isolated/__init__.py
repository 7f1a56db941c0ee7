"""Models that run in a process of their own, so that their crash, or a call that never returns, is not the server's."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from app.settings.model import ModelSource

if TYPE_CHECKING:
    from app.engine.description import ModelDescription
    from app.engine.servable import Servable

__all__ = ("Lost", "describe_isolated", "load_isolated")

Lost = Callable[[ModelSource, str], None]
"""Told of every process that was lost: of which model, and how it ended, in a few words."""


def load_isolated(
    source: ModelSource, load: "Callable[[ModelSource], Servable]", lost: Lost | None = None
) -> "Servable":
    """The model at `source`, loaded by `load` in a process of its own, which is started again whenever it ends.

    Args:
        source: the model.
        load: a function of a module, which the process imports.
        lost: told of every process that ends by itself or has to be killed.

    Raises:
        ModelError: what `load` raised there, or how the process ended.
    """
    from app.runtimes.isolated.loading import bind

    return bind(source, load, lost)


def describe_isolated(source: ModelSource, describe: "Callable[[ModelSource], ModelDescription]") -> "ModelDescription":
    """What `describe` says of the model at `source`, in a process that ends with it.

    Raises:
        ModelError: what `describe` raised there, or how the process ended.
    """
    from app.runtimes.isolated.process import in_process

    return in_process(source, describe)
