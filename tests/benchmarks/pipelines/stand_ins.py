"""Build small graphs with the outputs of known exporters, whose random weights read every pixel."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from tests.core.runtimes.onnxruntime import graphs


class StandIn:
    """Collects the nodes of a graph, with weights from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._nodes: list[Any] = []
        self._constants: dict[str, NDArray[Any]] = {}

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add an operation, and return the name of its output."""
        name = output or f"{operator.lower()}.{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Any, datatype: type[Any] = np.float32) -> str:
        """Add a constant, and return its name."""
        name = f"constant.{len(self._constants)}"
        self._constants[name] = np.asarray(values, datatype)
        return name

    def convolution(self, image: str, channels: int, kernel: tuple[int, int], gain: float, bias: float = 0.0) -> str:
        """Add a convolution with a stride of its kernel: [b, channels, h / kernel height, w / kernel width].

        `gain` is the standard deviation of an output for pixels with a standard deviation of 1.
        """
        weights = self._random.normal(size=(channels, 3, 2, 2)).repeat(kernel[0] // 2, 2).repeat(kernel[1] // 2, 3)
        weights *= gain / np.sqrt((weights**2).sum(axis=(1, 2, 3), keepdims=True) * kernel[0] * kernel[1] / 4)
        return self.node(
            "Conv", image, self.constant(weights), self.constant(np.full(channels, bias)), strides=list(kernel)
        )

    def rows(self, features: str, width: int, output: str = "") -> str:
        """Reshape [b, k * width, h, w] to [b, h * w * k, width]."""
        last = self.node("Transpose", features, perm=[0, 2, 3, 1])
        return self.node("Reshape", last, self.constant([0, -1, width], np.int64), output=output)

    def write(
        self, file: Path, outputs: Mapping[str, Sequence[int | str]], shape: Sequence[int | str], **options: Any
    ) -> Path:
        """Write the graph with the options of `graphs.write`."""
        file.parent.mkdir(parents=True, exist_ok=True)
        return graphs.write(file, self._nodes, outputs, constants=self._constants, shape=shape, **options)
