"""The runtimes, by precedence: the first one that recognises a model runs it, unless the settings name another."""

import importlib
from collections.abc import Callable

import msgspec

from app.core.engine.models.servable import Servable
from app.core.runtimes.onnxruntime.files.location import find_graphs
from app.core.settings.model import ModelSource
from app.plugins.torch.files import is_model_folder
from metadata.model import ModelMetadata


class Runtime(msgspec.Struct, frozen=True):
    """A way to run models.

    Attributes:
        name: value of ``runtime`` in model-settings.json.
        module: name of its module in this package, with the functions ``inspect`` and ``load``. It is imported by the
            first call, because it imports the loading code.
        recognises: returns whether the names of a model's files or its settings match this runtime.
    """

    name: str
    module: str
    recognises: Callable[[ModelSource], bool]

    def inspect(self, source: ModelSource) -> ModelMetadata:
        """Describe the model without keeping it loaded.

        Raises:
            ModelError: if the model cannot be described.
        """
        return importlib.import_module(self.module, __package__).inspect(source)

    def load(self, source: ModelSource) -> Servable:
        """Load the model. Several threads may call the result.

        Raises:
            ModelError: if the model cannot be loaded.
        """
        return importlib.import_module(self.module, __package__).load(source)


PYTHON = Runtime("python", ".python.loading", lambda source: source.settings.implementation is not None)
ONNXRUNTIME = Runtime("onnxruntime", ".onnxruntime.loading", lambda source: bool(find_graphs(source)))
OPENVINO = Runtime("openvino", "...plugins.openvino.session", lambda _: False)
TRANSFORMERS = Runtime("transformers", "...plugins.torch.binding", is_model_folder)
RUNTIMES = (PYTHON, ONNXRUNTIME, OPENVINO, TRANSFORMERS)
