"""Write ONNX models from ONNX's text format."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray


def write_graph(text: str, path: Path, tensors: Mapping[str, NDArray[np.float32]] | None = None) -> None:
    """Write the model of `text` with the constants `tensors`. The format has no dots in names: `_0_` becomes `.0.`."""
    onnx: Any = importlib.import_module("onnx")
    model = importlib.import_module("onnx.parser").parse_model(text)
    for value in (*model.graph.input, *model.graph.output):
        value.name = value.name.replace("_0_", ".0.")
    for node in model.graph.node:
        node.input[:] = [name.replace("_0_", ".0.") for name in node.input]
        node.output[:] = [name.replace("_0_", ".0.") for name in node.output]
    constants = (tensors or {}).items()
    model.graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in constants)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
