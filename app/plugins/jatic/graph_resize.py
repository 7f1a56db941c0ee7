"""Resize images inside an ONNX graph as Pillow or OpenCV do: two products with matrices of the filter's weights.

The operator Resize antialiases only from opset 18 on, and rounds to bytes nowhere. The weights are computed from the
sides of the image, so that the graph takes any size.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.images.preprocessing import Preprocessing

MIN_OPSET = 13
"""The first opset in which all operators here have these inputs."""
_CUBIC = -0.5
"""The parameter of Pillow's bicubic filter."""
_FLOAT, _DOUBLE = 1, 11
"""Numbers of ``onnx.TensorProto.DataType``."""
_BYTE_MAX = 255


class GraphBuilder:
    """Collects nodes and constants, whose names start with ``jatic/``; `onnx` is the package."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Append a node, and return the name of its output."""
        name = f"jatic/{operator}_{len(self.nodes)}"
        self.nodes.append(self._onnx.helper.make_node(operator, list(inputs), [name], **attributes))
        return name

    def constant(self, value: object, dtype: Any = np.float32) -> str:
        """Append a constant, and return its name."""
        name = f"jatic/constant_{len(self.constants)}"
        array: NDArray[Any] = np.array(value, dtype)
        self.constants.append(self._onnx.numpy_helper.from_array(array, name))
        return name


def reasons_against(options: Preprocessing) -> Sequence[str]:
    """Return what of a preprocessing these graphs cannot do; nothing if they can do all."""
    reasons: list[str] = []
    if options.resize not in ("stretch", "crop"):
        reasons.append(f'the resize "{options.resize}", which is neither "stretch" nor "crop"')
    if options.interpolation != "bilinear" and not (options.interpolation == "bicubic" and options.antialias):
        filtered = "with" if options.antialias else "without"
        reasons.append(f'the filter "{options.interpolation}" {filtered} antialiasing')
    if options.dynamic_size is not None:
        reasons.append(f"the size of each image: {options.dynamic_size}")
    if options.resize == "crop" and options.height != options.width:
        reasons.append("a crop that is not square, which pads narrow images")
    return reasons


def add_resize(builder: GraphBuilder, image: str, options: Preprocessing, *, grey: bool) -> str:
    """Add the resize of images [b, c, h, w], 0..255, and return the name of the result, 0..255.

    Colours are rounded to bytes after each pass, as by Pillow, or at the end, as by OpenCV. Grey values are not.
    """
    # 254 / 255 * 255 may be less than 254, and the filter's result then rounds to another byte.
    image = image if grey else _rounded(builder, image)
    shape = builder.add("Shape", image)
    sides = [builder.add("Gather", shape, builder.constant([axis], np.int64)) for axis in (2, 3)]
    shorter = builder.add("Min", *sides)
    rows, columns = (
        _weights(builder, side, shorter, target, options, transposed=target_axis == 1)
        for target_axis, (side, target) in enumerate(zip(sides, (options.height, options.width), strict=True))
    )
    across = builder.add("MatMul", image, columns)
    across = _rounded(builder, across) if options.antialias and not grey else across
    resized = builder.add("MatMul", rows, across)
    return resized if grey else _rounded(builder, resized)


def _rounded(builder: GraphBuilder, pixels: str) -> str:
    clipped = builder.add("Clip", pixels, builder.constant(0), builder.constant(_BYTE_MAX))
    return builder.add("Round", clipped)


def _weights(
    builder: GraphBuilder, side: str, shorter: str, target: int, options: Preprocessing, *, transposed: bool
) -> str:
    """Add the weights of the pixels of one axis, [target, side] or transposed.

    The output is the centre of the whole resized image.
    """

    def number(value: float) -> str:
        return builder.constant(value, np.float64)

    def double(name: str) -> str:
        return builder.add("Cast", name, to=_DOUBLE)

    if options.resize == "crop":
        scaled = builder.add("Mul", side, builder.constant([options.shorter_side], np.int64))
        resized = builder.add("Div", scaled, shorter)
    else:
        length = target * options.shorter_side // min(options.height, options.width)
        resized = builder.constant([length], np.int64)
    margin = builder.add("Sub", resized, builder.constant([target], np.int64))
    if options.crop_half_even:
        # The operator rounds half to even.
        start = builder.add("Round", builder.add("Div", double(margin), number(2)))
    else:
        start = double(builder.add("Div", margin, builder.constant([2], np.int64)))
    ratio = builder.add("Div", double(side), double(resized))
    indices = builder.constant(np.arange(target) + 0.5, np.float64)
    centres = builder.add("Mul", builder.add("Add", indices, start), ratio)
    length = double(side)
    if not options.antialias:
        # OpenCV repeats the pixels at the border.
        last = builder.add("Sub", length, number(0.5))
        centres = builder.add("Min", builder.add("Max", centres, number(0.5)), last)
    scalar = builder.constant(np.zeros(0), np.int64)
    limit = builder.add("Reshape", length, scalar)
    pixels = builder.add("Add", builder.add("Range", number(0), limit, number(1)), number(0.5))
    column, row = (builder.constant(shape, np.int64) for shape in ([-1, 1], [1, -1]))
    distances = builder.add(
        "Sub",
        builder.add("Reshape", pixels, column if transposed else row),
        builder.add("Reshape", centres, row if transposed else column),
    )
    if options.antialias:
        distances = builder.add("Div", distances, builder.add("Max", ratio, number(1)))
    weights = _filter(builder, builder.add("Abs", distances), cubic=options.interpolation == "bicubic")
    total = builder.add("ReduceSum", weights, builder.constant([0 if transposed else 1], np.int64), keepdims=1)
    return builder.add("Cast", builder.add("Div", weights, total), to=_FLOAT)


def _filter(builder: GraphBuilder, distance: str, *, cubic: bool) -> str:
    """Add the value of the triangle, or of the cubic filter, for distances of at least 0 in pixels."""

    def number(value: float) -> str:
        return builder.constant(value, np.float64)

    def polynomial(*factors: float) -> str:
        """Return the polynomial with these factors, the highest power first (Horner)."""
        value = number(factors[0])
        for factor in factors[1:]:
            value = builder.add("Add", builder.add("Mul", value, bounded), number(factor))
        return value

    if not cubic:
        return builder.add("Relu", builder.add("Sub", number(1), distance))
    bounded = builder.add("Min", distance, number(2))
    near = polynomial(_CUBIC + 2, -_CUBIC - 3, 0, 1)
    far = polynomial(_CUBIC, -5 * _CUBIC, 8 * _CUBIC, -4 * _CUBIC)
    return builder.add("Where", builder.add("Less", distance, number(1)), near, far)
