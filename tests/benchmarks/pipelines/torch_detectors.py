"""RF-DETR and torchvision's detectors, compared with their published steps."""

import importlib
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto
from onnxruntime import InferenceSession

from tests.benchmarks.pipelines import references as reference
from tests.benchmarks.pipelines.comparison import Answer, Family, Pixels
from tests.benchmarks.pipelines.references import detections, segments, sigmoid
from tests.benchmarks.pipelines.stand_ins import StandIn

_SIDE = 96
_CELLS = _SIDE // 16
_LABELS = ("-", "cat", "dog", "ship")
_MIN_SCORE = 0.3
_PARAMETERS = {"score_threshold": _MIN_SCORE}
_CORNERS = [[1, 0, 1, 0], [0, 1, 0, 1], [-0.5, 0, 0.5, 0], [0, -0.5, 0, 0.5]]
"""Converts rows of cx, cy, w, h to corners."""
_MEAN, _STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def torch_detector_families(folder: Path) -> Iterator[Family]:
    """Yield RF-DETR and torchvision's detectors, with random weights, with boxes only and with masks."""
    rf_detr, torchvision = "steps of rfdetr, PyTorch", "documented steps of torchvision"
    for name, pipeline, write, predicted, has_masks in (
        ("RF-DETR", rf_detr, _rf_detr, _predicted_by_rf_detr, False),
        ("RF-DETR segmentation", rf_detr, _rf_detr, _predicted_by_rf_detr, True),
        ("torchvision detectors", torchvision, _torchvision, _predicted_by_torchvision, False),
        ("torchvision Mask R-CNN", torchvision, _torchvision, _predicted_by_torchvision, True),
    ):
        file = write(folder / name / "model.onnx", has_masks=has_masks)
        (file.parent / "model-settings.json").write_text(json.dumps({"labels": _LABELS}))
        yield Family(name, pipeline, file.parent, partial(predicted, reference.load(file)), _PARAMETERS)


def _rf_detr(file: Path, *, has_masks: bool) -> Path:
    graph = StandIn(5)
    queries = _CELLS * _CELLS
    graph.node("Sigmoid", graph.rows(graph.convolution("input", 4, (16, 16), 1, 0), 4), output="dets")
    graph.rows(graph.convolution("input", len(_LABELS), (16, 16), 1, -1), len(_LABELS), "labels")
    outputs: dict[str, list[int | str]] = {"dets": ["b", queries, 4], "labels": ["b", queries, len(_LABELS)]}
    if has_masks:
        graph.node("Identity", graph.convolution("input", queries, (4, 4), 2, 0), output="masks")
        outputs["masks"] = ["b", queries, _SIDE // 4, _SIDE // 4]
    return graph.write(file, outputs, ("b", 3, _SIDE, _SIDE), name="input")


def _predicted_by_rf_detr(session: InferenceSession, pixels: Pixels) -> Answer:
    """Take the steps of `RFDETR.predict`: to_tensor, resize without antialiasing, normalize; then `PostProcess`."""
    torch: Any = importlib.import_module("torch")
    image = torch.from_numpy(pixels.copy()).permute(2, 0, 1)[None].float() / 255
    resized = torch.nn.functional.interpolate(image, (_SIDE, _SIDE), mode="bilinear", align_corners=False)
    normal = (resized[0].permute(1, 2, 0).double().numpy() - _MEAN) / _STD
    batch = normal.transpose(2, 0, 1)[np.newaxis].astype(np.float32)
    dets, logits, *masks = (output[0] for output in reference.run(session, input=batch))
    scores = sigmoid(logits.astype(np.float64)).ravel()
    best = np.argsort(-scores, kind="stable")[: len(logits)]
    best = best[scores[best] > _MIN_SCORE]
    queries, classes = np.divmod(best, logits.shape[1])
    height, width = pixels.shape[:2]
    corners = np.concatenate([dets[:, :2] - dets[:, 2:] / 2, dets[:, :2] + dets[:, 2:] / 2], axis=1)
    labels = [_LABELS[number] for number in classes]
    if not masks:
        return detections(labels, scores[best], corners[queries] * [width, height, width, height], pixels)
    planes = torch.from_numpy(masks[0][queries])[:, None]
    large = torch.nn.functional.interpolate(planes, (height, width), mode="bilinear", align_corners=False)
    return segments(labels, scores[best], list(large[:, 0].numpy() > 0))


def _torchvision(file: Path, *, has_masks: bool) -> Path:
    """Write a graph that resizes and normalises an image [3, h, w] by itself, and returns a box for each cell."""
    graph = StandIn(6)
    sides = graph.node("Slice", graph.node("Shape", "image"), *(graph.constant([end], np.int64) for end in (1, 3)))
    floats = graph.node(
        "Cast", graph.node("Gather", sides, graph.constant([1, 0, 1, 0], np.int64)), to=TensorProto.FLOAT
    )
    batch = graph.node("Unsqueeze", "image", graph.constant([0], np.int64))
    size = graph.constant([1, 3, _SIDE, _SIDE], np.int64)
    resized = graph.node("Resize", batch, "", "", size, mode="linear", coordinate_transformation_mode="half_pixel")
    normal = graph.node("Div", graph.node("Sub", resized, _planes(graph, _MEAN)), _planes(graph, _STD))
    rows = graph.node("Sigmoid", graph.rows(graph.convolution(normal, 4, (16, 16), 1, 0), 4))
    corners = graph.node("MatMul", graph.node("Squeeze", rows, graph.constant([0], np.int64)), graph.constant(_CORNERS))
    graph.node("Mul", corners, floats, output="boxes")
    classes = len(_LABELS) - 1
    logits = graph.rows(graph.convolution(normal, classes, (16, 16), 1, -1), classes)
    scores = graph.node("Sigmoid", graph.node("Squeeze", logits, graph.constant([0], np.int64)))
    numbers = graph.node("ArgMax", scores, axis=1, keepdims=0)
    graph.node("Add", numbers, graph.constant([1], np.int64), output="labels")
    graph.node("ReduceMax", scores, axes=[1], keepdims=0, output="scores")
    outputs: dict[str, list[int | str]] = {"boxes": ["n", 4], "labels": ["n"], "scores": ["n"]}
    if has_masks:
        count = _CELLS * _CELLS
        planes = graph.node("Transpose", graph.convolution(normal, count, (4, 4), 2, 0), perm=[1, 0, 2, 3])
        full = graph.node("Concat", graph.constant([count, 1], np.int64), sides, axis=0)
        probabilities = graph.node("Sigmoid", planes)
        graph.node("Resize", probabilities, "", "", full, mode="linear", output="masks")
        outputs["masks"] = ["n", 1, "h", "w"]
    types = {"labels": TensorProto.INT64}
    return graph.write(file, outputs, (3, "height", "width"), name="image", output_types=types)


def _planes(graph: StandIn, values: Any) -> str:
    return graph.constant(np.reshape(values, (1, 3, 1, 1)))


def _predicted_by_torchvision(session: InferenceSession, pixels: Pixels) -> Answer:
    """Run `ToTensor`, then the model, whose boxes are pixels of the image and whose masks are probabilities."""
    tensor = (pixels.transpose(2, 0, 1).astype(np.float32) / 255).astype(np.float32)
    boxes, labels, scores, *masks = reference.run(session, image=tensor)
    chosen = scores >= _MIN_SCORE
    names = [_LABELS[number] for number in labels[chosen]]
    if not masks:
        return detections(names, scores[chosen], boxes[chosen], pixels)
    return segments(names, scores[chosen], list(masks[0][chosen, 0] > 0.5))
