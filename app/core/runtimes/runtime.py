"""The runtimes of core, for ONNX models and Python classes."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from app.core.engine.models.servable import Servable
from app.core.hooks import Ref
from app.core.runtimes.onnxruntime.files.location import find_graphs
from app.core.settings.model import ModelSource
from metadata.model import ModelMetadata


class ModuleRuntime(msgspec.Struct, frozen=True):
    """A `Runtime` whose functions ``inspect`` and ``load`` are in one module.

    Attributes:
        name: as `Runtime`.
        priority: as `Runtime`.
        module: the module. It is imported by the first call, because it imports the loading code.
        recognises: as `Runtime`.
        precisions: as `Runtime`.
    """

    name: str
    priority: int
    module: str
    recognises: Callable[[ModelSource], bool]
    precisions: Sequence[str] = ("fp32",)

    def inspect(self, source: ModelSource, /) -> ModelMetadata:
        """Describe the model without keeping it loaded."""
        return self._function("inspect")(source)

    def load(self, source: ModelSource, /) -> Servable:
        """Load the model. Several threads may call the result."""
        return self._function("load")(source)

    def _function(self, name: str) -> Callable[[ModelSource], Any]:
        return Ref[Callable[[ModelSource], Any]](f"{self.module}:{name}").load()


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
