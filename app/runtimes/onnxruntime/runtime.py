"""The runtime itself: which files are its own, and who loads them.

What loads them is imported when it is needed, because importing a runtime should cost nothing.
"""

from app.engine.description import ModelDescription
from app.engine.servable import Servable
from app.runtimes.onnxruntime.location import find_graphs
from app.settings.model import ModelSource

__all__ = ("OnnxRuntime",)


class OnnxRuntime:
    """Serves ``.onnx`` files: one for a vision model, three together for a vision language model."""

    name = "onnxruntime"

    def recognises(self, source: ModelSource, /) -> bool:
        return bool(find_graphs(source)) or _is_language_model(source)

    def inspect(self, source: ModelSource, /) -> ModelDescription:
        if _is_language_model(source):
            from app.runtimes.onnxruntime import image_text_to_text

            return image_text_to_text.inspect(source)
        from app.runtimes.onnxruntime.inspection import inspect_model

        return inspect_model(source).description

    def load(self, source: ModelSource, /) -> Servable:
        if _is_language_model(source):
            from app.runtimes.onnxruntime import image_text_to_text

            return image_text_to_text.load(source)
        from app.runtimes.onnxruntime.vision import load_vision_model

        return load_vision_model(source)


def _is_language_model(source: ModelSource) -> bool:
    from app.runtimes.onnxruntime import image_text_to_text

    return image_text_to_text.recognises(source)
