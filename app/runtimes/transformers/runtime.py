"""The transformers runtime: recognise, describe and load its models.

Its methods import the loading code, so that importing the runtime is cheap.
"""

from app.engine.models.model_metadata import ModelMetadata
from app.engine.models.servable import Servable
from app.runtimes.transformers.files import is_model_folder
from app.settings.model import ModelSource


class TransformersRuntime:
    """Serves folders that `save_pretrained` of transformers writes."""

    name = "transformers"

    def recognises(self, source: ModelSource, /) -> bool:
        return is_model_folder(source)

    def inspect(self, source: ModelSource, /) -> ModelMetadata:
        from app.runtimes.transformers.architecture import read_model_spec

        return read_model_spec(source).description

    def load(self, source: ModelSource, /) -> Servable:
        from app.runtimes.transformers.binding import bind

        return bind(source)
