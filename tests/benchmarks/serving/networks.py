"""Write networks to serve: MobileNetV2 (Sandler et al., 2018) in two widths, with random weights, as ONNX."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import helper

from tests.benchmarks.serving.shape import CLASSES, SIDE
from tests.core.runtimes.onnxruntime import graphs

WIDTHS = {"small": 0.2, "medium": 1.0}

# Table 2 of the paper: expansion, channels, repeats, stride.
_BLOCKS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))


class _Graph:
    """Collects the nodes of a graph with random weights, and counts the multiply-adds for one image."""

    def __init__(self) -> None:
        self._random = np.random.default_rng(0)
        self.nodes: list[Any] = []
        self.constants: dict[str, NDArray[np.float32]] = {}
        self.multiply_adds = 0

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Add an operation, and return the name of its output."""
        name = output or f"{operator.lower()}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, values: Any) -> str:
        """Add a constant, and return its name."""
        name = f"constant.{len(self.constants)}"
        self.constants[name] = np.asarray(values, np.float32)
        return name

    def random(self, *shape: int) -> str:
        fan_in = max(1, int(np.prod(shape[1:])))
        return self.constant(self._random.normal(0, (2 / fan_in) ** 0.5, shape))

    def layer(
        self, x: str, inputs: int, outputs: int, side: int, *, kernel: int = 1, stride: int = 1, groups: int = 1
    ) -> tuple[str, int]:
        """Add a convolution, and return its output and the side of the output."""
        side = -(-side // stride)
        weight = self.random(outputs, inputs // groups, kernel, kernel)
        bias = self.constant(np.zeros(outputs))
        pad = kernel // 2
        self.multiply_adds += side * side * outputs * (inputs // groups) * kernel * kernel
        output = self.node(
            "Conv", x, weight, bias, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4, group=groups
        )
        return output, side

    def relu6(self, x: str) -> str:
        return self.node("Clip", x, self.constant(0), self.constant(6))


def write_model(file: Path, width: float) -> float:
    """Write the network, `input` FP32 [-1, 3, 224, 224] to `probabilities` FP32 [-1, 1000].

    Return the millions of floating-point operations for an image, two for each multiply-add.
    """
    graph = _Graph()
    x, side = graph.layer("input", 3, _channels(32, width), SIDE, kernel=3, stride=2)
    x, channels_in = graph.relu6(x), _channels(32, width)
    for expansion, channels, repeats, first_stride in _BLOCKS:
        channels_out = _channels(channels, width)
        for repeat in range(repeats):
            stride = first_stride if repeat == 0 else 1
            inner = channels_in * expansion
            y = x
            if expansion > 1:
                y, side = graph.layer(y, channels_in, inner, side)
                y = graph.relu6(y)
            y, output_side = graph.layer(y, inner, inner, side, kernel=3, stride=stride, groups=inner)
            y, side = graph.layer(graph.relu6(y), inner, channels_out, output_side)
            x = graph.node("Add", x, y) if stride == 1 and channels_in == channels_out else y
            channels_in = channels_out
    last = max(1280, _channels(1280, width)) if width >= 1 else 640
    x, side = graph.layer(x, channels_in, last, side)
    x = graph.node("Flatten", graph.node("GlobalAveragePool", graph.relu6(x)))
    graph.multiply_adds += last * CLASSES
    scores = graph.node("Gemm", x, graph.random(CLASSES, last), transB=1)
    graph.node("Softmax", scores, output="probabilities", axis=1)
    outputs = {"probabilities": ["batch", CLASSES]}
    graphs.write(file, graph.nodes, outputs, constants=graph.constants, shape=("batch", 3, SIDE, SIDE), name="input")
    return graph.multiply_adds * 2 / 1e6


def _channels(count: int, width: float) -> int:
    """Round to a multiple of eight, as the paper's authors do."""
    scaled = count * width
    rounded = max(8, int(scaled + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * scaled else rounded
