"""The interface between an ONNX graph's layout and the framework that runs the graph."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from numpy.typing import NDArray

from app.engine.models.model_metadata import Fact
from tasks.inference.tensor import TensorSpec


class GraphSession(Protocol):
    """A graph that several threads may call.

    Attributes:
        file: the ``.onnx`` file.
        inputs: inputs of the graph; -1 is a dimension of any size.
        outputs: outputs of the graph; -1 is a dimension of any size.
        metadata: the file's ``metadata_props``.
        facts: facts about how the graph runs.
        copies: the number of copies of the graph; calls one after the other run on each in turn.
    """

    file: Path
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    metadata: Mapping[str, str]
    facts: Sequence[Fact]
    copies: int

    def run(self, feeds: Mapping[str, NDArray[Any]], names: Sequence[str] | None = None) -> list[NDArray[Any]]:
        """Run the graph, and return the outputs `names`, or all outputs in order.

        Raises:
            InferenceError: MODEL_FAILED with the framework's reason.
        """
        ...
