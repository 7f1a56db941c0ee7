"""The interface of a runtime: describe a model, and load it."""

from typing import Protocol

from app.engine.models.model_metadata import ModelMetadata
from app.engine.models.servable import Servable
from app.settings.model import ModelSource


class Runtime(Protocol):
    """A way to run models. Importing a runtime's package is cheap: `inspect` and `load` import its framework."""

    @property
    def name(self) -> str:
        """Return the name of the runtime, as in ``runtime`` in model-settings.json."""
        ...

    def recognises(self, source: ModelSource, /) -> bool:
        """Return whether the names of the files or the settings match this runtime."""
        ...

    def inspect(self, source: ModelSource, /) -> ModelMetadata:
        """Describe the model without keeping it loaded.

        Raises:
            ModelError: if the model cannot be described.
        """
        ...

    def load(self, source: ModelSource, /) -> Servable:
        """Load the model. Several threads may call the result.

        Raises:
            ModelError: if the model cannot be loaded.
        """
        ...
