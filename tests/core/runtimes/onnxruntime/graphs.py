"""Write tiny ONNX files with known answers."""

import importlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from app.core.plugins import registry
from app.core.settings.model import ModelSource
from tasks.task import decode_task_type

OPSET = 17
Floats = NDArray[np.float32]
Side = int | str


# The type stubs of onnx do not cover its protobuf messages.
_onnx: Any = onnx


def read_model(file: Path) -> Any:
    """Return a file as a protobuf message that tests can change."""
    return _onnx.load(str(file))


def write_model(model: Any, file: Path) -> None:
    """Write a protobuf message of `read_model` to a file."""
    _onnx.save(model, str(file))


def write(
    file: Path,
    nodes: Sequence[Any],
    outputs: Mapping[str, Sequence[Side]],
    *,
    constants: Mapping[str, NDArray[Any]] | None = None,
    shape: Sequence[Side] = ("batch", 3, 8, 8),
    datatype: int = TensorProto.FLOAT,
    properties: Mapping[str, str] | None = None,
    name: str = "images",
    extra_inputs: Sequence[Any] = (),
    output_types: Mapping[str, int] | None = None,
) -> Path:
    """Write a graph with an image input.

    Args:
        file: where to write it.
        nodes: the operations.
        outputs: the shape of each output.
        constants: initializers by name.
        shape: of the image input.
        datatype: of the image input.
        properties: the file's metadata.
        name: of the image input.
        extra_inputs: inputs besides the image.
        output_types: the datatypes of outputs that are not FLOAT.
    """
    graph: Any = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, datatype, list(shape)), *extra_inputs],
        [
            helper.make_tensor_value_info(output, (output_types or {}).get(output, TensorProto.FLOAT), list(sides))
            for output, sides in outputs.items()
        ],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    model: Any = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    helper.set_model_props(model, dict(properties or {}))
    write_model(model, file)
    return file


def parse(file: Path, text: str, constants: Mapping[str, NDArray[Any]] | None = None) -> Path:
    """Write a graph in ONNX's text format, ``(inputs) => (outputs) <constants> { nodes }``, with further constants.

    The format has no dots in names: `_0_` becomes `.0.`.
    """
    model = importlib.import_module("onnx.parser").parse_model(
        f'<ir_version: 10, opset_import: ["" : {OPSET}]> graph {text}'
    )
    for value in (*model.graph.input, *model.graph.output):
        value.name = value.name.replace("_0_", ".0.")
    for node in model.graph.node:
        node.input[:] = [name.replace("_0_", ".0.") for name in node.input]
        node.output[:] = [name.replace("_0_", ".0.") for name in node.output]
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in (constants or {}).items())
    file.parent.mkdir(parents=True, exist_ok=True)
    write_model(model, file)
    return file


def affine(
    file: Path,
    outputs: Mapping[str, tuple[Floats, Floats]],
    *,
    shape: Sequence[Side] = ("batch", 3, 8, 8),
    name: str = "images",
    output_types: Mapping[str, int] | None = None,
    **options: Any,
) -> Path:
    """Write a graph whose outputs are ``base + gain * mean``, with the mean over all values of an input image.

    Args:
        file: where to write it.
        outputs: base and gain, each [1, ...], by output name.
        shape: as in `write`, like the other arguments. No output depends on extra inputs.
        name: of the image input.
        output_types: the datatypes of outputs that are not FLOAT.
        options: of `write`.
    """
    nodes = [helper.make_node("Cast", [name], ["floats"], to=TensorProto.FLOAT)]
    nodes.append(helper.make_node("ReduceMean", ["floats"], ["mean"], axes=[1, 2, 3], keepdims=0))
    constants: dict[str, NDArray[Any]] = {}
    declared: dict[str, Sequence[Side]] = {}
    for output, (base, gain) in outputs.items():
        constants[f"{output}.base"], constants[f"{output}.gain"] = base, gain
        constants[f"{output}.rank"] = np.array([-1] + [1] * (base.ndim - 1), np.int64)
        nodes += [
            helper.make_node("Reshape", ["mean", f"{output}.rank"], [f"{output}.mean"]),
            helper.make_node("Mul", [f"{output}.mean", f"{output}.gain"], [f"{output}.product"]),
            helper.make_node("Add", [f"{output}.product", f"{output}.base"], [f"{output}.sum"]),
        ]
        output_type = (output_types or {}).get(output, TensorProto.FLOAT)
        nodes.append(helper.make_node("Cast", [f"{output}.sum"], [output], to=output_type))
        declared[output] = [shape[0], *base.shape[1:]]
    options |= {"shape": shape, "name": name, "output_types": output_types}
    return write(file, nodes, declared, constants=constants, **options)


def constant(file: Path, outputs: Mapping[str, Floats], **options: Any) -> Path:
    """Write a graph that gives the same outputs for every image, with the options of `affine`."""
    return affine(file, {output: (base, np.zeros_like(base)) for output, base in outputs.items()}, **options)


def fixed(file: Path, outputs: Mapping[str, NDArray[Any]], **options: Any) -> Path:
    """Write a graph that gives the same outputs of any datatype for every image, with the options of `write`."""
    nodes = [helper.make_node("Identity", [f"{output}.value"], [output]) for output in outputs]
    types = {output: helper.np_dtype_to_tensor_dtype(array.dtype) for output, array in outputs.items()}
    values = {f"{output}.value": array for output, array in outputs.items()}
    shapes = {output: array.shape for output, array in outputs.items()}
    return write(file, nodes, shapes, constants=values, output_types=types, **options)


def channel_means(
    file: Path,
    *,
    output: str = "output0",
    softmax: bool = False,
    shape: Sequence[Side] = ("batch", 3, 8, 8),
    **options: Any,
) -> Path:
    """Write a classifier of three classes whose scores are the means of the input's channels; options of `write`."""
    nodes = [
        helper.make_node("Cast", ["images"], ["floats"], to=TensorProto.FLOAT),
        helper.make_node("ReduceMean", ["floats"], ["means"], axes=[2, 3], keepdims=0),
        helper.make_node("Softmax" if softmax else "Identity", ["means"], [output]),
    ]
    return write(file, nodes, {output: [shape[0], 3]}, shape=shape, **options)


def properties(task: str, names: Sequence[str], size: tuple[int, int], **extra: str) -> dict[str, str]:
    """Return the metadata that Ultralytics writes."""
    return {
        "task": task,
        "names": str(dict(enumerate(names))),
        "imgsz": str(list(size)),
        "args": "{'nms': False}",
        **extra,
    }


def logit(probability: float) -> float:
    """Return the value whose sigmoid is this probability."""
    return math.log(probability / (1 - probability))


def source(file: Path, **settings: Any) -> ModelSource:
    """Return the source of a one-file model, with settings validated like a settings file."""
    kind: Any = registry().model_settings
    checked = msgspec.json.decode(json.dumps(settings), type=kind, dec_hook=decode_task_type)
    return ModelSource(name="model", version="1", folder=file.parent, file=file, settings=checked)


def raw(columns: Sequence[Sequence[float]]) -> Floats:
    """Return candidates, given as rows, in the raw layout [1, channels, N], padded with zeros to N >= 64."""
    rows = np.zeros((max(64, len(columns)), len(columns[0])), np.float32)
    rows[: len(columns)] = columns
    return np.ascontiguousarray(rows.T[np.newaxis])


def rows(detections: Sequence[Sequence[float]], max_rows: int = 300) -> Floats:
    """Return detections in the layout of graphs with NMS: [1, max_rows, width], padded with zeros."""
    filled = np.zeros((1, max_rows, len(detections[0])), np.float32)
    filled[0, : len(detections)] = detections
    return filled
