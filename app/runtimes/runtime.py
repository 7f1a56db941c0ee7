"""What a model runtime offers: to say what a model is, and to load it."""

from typing import Protocol

from app.engine.description import ModelDescription
from app.engine.servable import Servable
from app.settings.model import ModelSource

__all__ = ("Runtime",)


class Runtime(Protocol):
    """One way of running models. Importing a runtime's package costs nothing; its framework is imported by `load`."""

    @property
    def name(self) -> str:
        """What ``runtime`` in model-settings.json calls it."""
        ...

    def recognises(self, source: ModelSource, /) -> bool:
        """Whether the files look like this runtime's, from their names alone."""
        ...

    def inspect(self, source: ModelSource, /) -> ModelDescription:
        """Work out what the model is, without keeping it.

        Raises:
            ModelError: with a sentence for the model's owner.
        """
        ...

    def load(self, source: ModelSource, /) -> Servable:
        """Load the model, ready to answer from several threads.

        Raises:
            ModelError: with a sentence for the model's owner.
        """
        ...
