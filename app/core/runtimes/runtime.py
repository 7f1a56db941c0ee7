"""The runtimes of core, for ONNX models and Python classes."""

from collections.abc import Callable, Sequence

import msgspec

from app.core.engine.models.servable import Servable
from app.core.hooks import Ref
from app.core.runtimes.onnxruntime.files.location import find_graphs
from app.core.settings.model import ModelSource
from metadata.model import ModelMetadata


class ModuleRuntime(msgspec.Struct, frozen=True):
    """A `Runtime` whose functions ``inspect`` and ``load`` are in `module`, which the first call imports."""

    name: str
    priority: int
    module: str
    recognises: Callable[[ModelSource], bool]
    precisions: Sequence[str] = ("fp32",)

    def inspect(self, source: ModelSource, /) -> ModelMetadata:
        """Describe the model without keeping it loaded."""
        return Ref[Callable[[ModelSource], ModelMetadata]](f"{self.module}:inspect").load()(source)

    def load(self, source: ModelSource, /) -> Servable:
        """Load the model. Several threads may call the result."""
        return Ref[Callable[[ModelSource], Servable]](f"{self.module}:load").load()(source)


PYTHON = ModuleRuntime(
    "python", 50, "app.core.runtimes.python.loading", lambda source: source.settings.implementation is not None
)
ONNXRUNTIME = ModuleRuntime(
    "onnxruntime",
    40,
    "app.core.runtimes.onnxruntime.loading",
    lambda source: bool(find_graphs(source)),
    ("fp32", "int8"),
)
RUNTIMES = (PYTHON, ONNXRUNTIME)
