"""The OpenVINO runtime. Its methods import the loading code, so that importing the runtime is cheap."""

from app.engine.models.model_metadata import ModelMetadata
from app.engine.models.servable import Servable
from app.settings.model import ModelSource


class OpenVinoRuntime:
    """Serves models with one ``.onnx`` file, if their settings select this runtime."""

    name = "openvino"

    def recognises(self, _: ModelSource, /) -> bool:
        return False

    def inspect(self, source: ModelSource, /) -> ModelMetadata:
        from app.runtimes.onnxruntime.single_graph import inspect_single_graph
        from app.runtimes.openvino.session import OpenVinoSession

        return inspect_single_graph(source, OpenVinoSession)

    def load(self, source: ModelSource, /) -> Servable:
        from app.runtimes.onnxruntime.single_graph import load_single_graph
        from app.runtimes.openvino.session import OpenVinoSession

        return load_single_graph(source, OpenVinoSession)
