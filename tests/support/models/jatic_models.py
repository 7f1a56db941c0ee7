"""Write tiny models of JATIC_ONNX whose scores show every step of the preprocessing."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from onnx import helper

from tests.core.runtimes.onnxruntime import graphs

Side = int | str
BOXES = np.array([[[0, 0.1, 0.5, 1], [0.25, 0.25, 0.75, 0.5], [0.5, 0, 1, 0.25], [0, 0, 0, 0]]], np.float32)
LABELS = ("Background", "person", "vehicle")
MIXES = np.array([[[0.1, 0.6, 0.3], [0.5, 0.2, 0.1], [0.7, 0.1, 0.2], [0, 0, 0]]], np.float32)
"""[1, N, classes]: the score of a class in a box for a white image."""
PIXELS = ((0, 0), (1, 2), (3, 1), (-1, -1))
"""Rows and columns of the input that a classifier returns as its scores."""


class Model(msgspec.Struct, frozen=True):
    """A graph and its metadata file."""

    graph: Path
    metadata: Path


def metadata(task: str, labels: object, **changes: Any) -> dict[str, Any]:
    """Return the content of a metadata file; `changes` are fields of ``io``."""
    pixels = {"channels": "RGB", "height": 10, "width": 20}
    io = {"batchSize": -1, "interface": task, "input": pixels, "output": {}, **changes}
    return {"interface": {"name": "JATIC_ONNX", "version": "v1"}, "io": io, "index2label": labels}


def write_metadata(folder: Path, content: object, name: str = "model-metadata.json") -> Path:
    file = folder / name
    file.write_text(json.dumps(content))
    return file


def write_classifier(
    folder: Path, *, shape: Sequence[Side] = ("b", 3, "h", "w"), gain: float = 1.0, **changes: Any
) -> Model:
    """Write a classifier whose scores are the channels of the input at `PIXELS`, times a gain."""
    folder.mkdir(parents=True, exist_ok=True)
    channels = shape[1]
    assert isinstance(channels, int)
    classes = channels * len(PIXELS)
    nodes = [
        helper.make_node("Transpose", ["image"], ["rows"], perm=[2, 3, 0, 1]),
        helper.make_node("GatherND", ["rows", "places"], ["by_place"]),
        helper.make_node("Transpose", ["by_place"], ["by_image"], perm=[1, 0, 2]),
        helper.make_node("Reshape", ["by_image", "shape"], ["pixels"]),
        helper.make_node("Mul", ["pixels", "gain"], ["scores"]),
    ]
    constants = {"places": np.array(PIXELS), "shape": np.array([0, classes]), "gain": np.array(gain, np.float32)}
    graph = graphs.write(
        folder / "model.onnx", nodes, {"scores": [shape[0], classes]}, constants=constants, shape=shape, name="image"
    )
    labels = [f"pixel {index}" for index in range(classes)]
    content = metadata("IMAGE_CLASSIFICATION", labels, **{"output": {"nClasses": classes}, **changes})
    return Model(graph, write_metadata(folder, content))


def write_detector(
    folder: Path, *, shape: Sequence[Side] = ("b", 3, "h", "w"), labels: object = None, **changes: Any
) -> Model:
    """Write a detector with fixed boxes, whose scores are the mean of the input times `MIXES`."""
    folder.mkdir(parents=True, exist_ok=True)
    graph = graphs.affine(
        folder / "model.onnx",
        {"boxes": (BOXES, np.zeros_like(BOXES)), "scores": (np.zeros_like(MIXES), MIXES)},
        shape=shape,
        name="image",
    )
    labels = {str(index): label for index, label in enumerate(LABELS)} if labels is None else labels
    output = {"nClasses": len(LABELS), "nBoxes": BOXES.shape[1]}
    return Model(
        graph, write_metadata(folder, metadata("IMAGE_OBJECT_DETECTION", labels, **{"output": output, **changes}))
    )
