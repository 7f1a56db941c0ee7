"""The Python runtime: recognise, describe and load its models."""

from app.engine.models.model_metadata import ModelMetadata
from app.engine.models.servable import Servable
from app.settings.model import ModelSource


class PythonRuntime:
    """Serves classes with ``predict``, named as ``implementation`` in model-settings.json."""

    name = "python"

    def recognises(self, source: ModelSource, /) -> bool:
        return source.settings.implementation is not None

    def inspect(self, source: ModelSource, /) -> ModelMetadata:
        from app.runtimes.python.loading import describe_class

        return describe_class(source)

    def load(self, source: ModelSource, /) -> Servable:
        from app.runtimes.python.loading import load_class

        return load_class(source)
