"""The ONNX runtime: recognise, describe and load its models.

Its methods import the loading code, so that importing the runtime is cheap.
"""

from app.engine.models.model_metadata import ModelMetadata
from app.engine.models.servable import Servable
from app.runtimes.onnxruntime.files.location import find_graphs
from app.settings.model import ModelSource


class OnnxRuntime:
    """Serves ``.onnx`` files: one for a vision model, three for a vision-language model."""

    name = "onnxruntime"

    def recognises(self, source: ModelSource, /) -> bool:
        return bool(find_graphs(source)) or _is_language_model(source)

    def inspect(self, source: ModelSource, /) -> ModelMetadata:
        if _is_language_model(source):
            from app.runtimes.onnxruntime import image_text_to_text

            return image_text_to_text.inspect(source)
        from app.runtimes.onnxruntime.single_graph import inspect_single_graph

        return inspect_single_graph(source)

    def load(self, source: ModelSource, /) -> Servable:
        if _is_language_model(source):
            from app.runtimes.onnxruntime import image_text_to_text

            return image_text_to_text.load(source)
        from app.runtimes.onnxruntime.single_graph import load_single_graph

        return load_single_graph(source)


def _is_language_model(source: ModelSource) -> bool:
    from app.runtimes.onnxruntime import image_text_to_text

    return image_text_to_text.supports(source)
