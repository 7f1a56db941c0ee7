"""Exporters of detectors: the outputs that each writes for known boxes, and what has to be declared.

An image of 640x480 pixels becomes an input of 320x256, stretched or with a letterbox, so that a box in the wrong frame,
unit or order differs. The table of docs/models.md comes from `CASES`.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

Outputs = Mapping[str, NDArray[Any]]
Boxes = NDArray[np.float32]

HEIGHT, WIDTH = 256, 320
OBJECTS = [[100, 60, 300, 240], [320, 120, 420, 400]]
"""A dog and a cat, xyxy in image pixels."""
LABELS = ["fox", "cat", "dog"]
NUMBERS, SCORES = np.array([2, 1]), np.array([0.9, 0.8], np.float32)
SIDES = np.array([WIDTH, HEIGHT, WIDTH, HEIGHT], np.float32)
INT32, INT64 = np.int32, np.int64


def swapped(boxes: Boxes) -> Boxes:
    """Return boxes as top, left, bottom, right."""
    return boxes[:, [1, 0, 3, 2]]


def centred(boxes: Boxes) -> Boxes:
    """Return boxes as centre, width and height."""
    return np.concatenate([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], axis=1)


def padded(values: NDArray[Any], rest: Any = 0) -> NDArray[Any]:
    """Return values of two objects [1, 3, ...] with a third one, `rest`."""
    return np.concatenate([values, np.full_like(values[:1], rest)])[np.newaxis]


def rows(*columns: NDArray[Any]) -> Boxes:
    """Return columns side by side."""
    return np.concatenate([column.reshape(2, -1) for column in columns], axis=1, dtype=np.float32)


def mmdeploy(boxes: Boxes) -> Outputs:
    return {"dets": padded(rows(boxes, SCORES)), "labels": padded(NUMBERS, -1)}


def tensorflow(boxes: Boxes) -> Outputs:
    found = {
        "detection_boxes": padded(swapped(boxes / SIDES)),
        "detection_classes": padded((NUMBERS + 1).astype(np.float32), 1),
        "detection_scores": padded(SCORES, 0.99),
        "num_detections": np.array([2], np.float32),
        "raw_detection_boxes": np.zeros((1, 9, 4), np.float32),
        "raw_detection_scores": np.zeros((1, 9, 4), np.float32),
    }
    return {f"{name}:0": array for name, array in found.items()}


def counted(count: str, names: str, prefix: str = "", kind: type = INT32) -> Callable[[Boxes], Outputs]:
    def write(boxes: Boxes) -> Outputs:
        # The third object is behind the number of objects.
        found = (np.array([[2]], kind), padded(boxes), padded(SCORES, 0.99), padded(NUMBERS.astype(kind)))
        return {f"{prefix}{name}": array for name, array in zip((count, *names.split()), found, strict=True)}

    return write


def flat(name: str, *order: str) -> Callable[[Boxes], Outputs]:
    def write(boxes: Boxes) -> Outputs:
        parts: dict[str, NDArray[Any]] = {"image": np.zeros(2), "box": boxes, "score": SCORES, "class": NUMBERS}
        return {name: rows(*(parts[part] for part in order))}

    return write


def paddle(boxes: Boxes) -> Outputs:
    found = np.concatenate([rows(NUMBERS, SCORES, boxes), np.full((1, 6), -1, np.float32)])
    return {"multiclass_nms3_0.tmp_0": found, "multiclass_nms3_0.tmp_2": np.array([2], INT32)}


def effdet(boxes: Boxes) -> Outputs:
    return {"output": padded(rows(boxes, SCORES, NUMBERS + 1))}


def pairs(boxes: Boxes, background: float = 0.0, columns: int = 3) -> tuple[Boxes, Boxes]:
    """Return 600 candidates: two objects, each twice, and background; and scores, 0 or `background` first."""
    candidates = np.random.default_rng(0).uniform(0, 60, (600, 4)).astype(np.float32)
    candidates[:, 2:] += candidates[:, :2] + 1
    candidates[:4] = np.concatenate([boxes, boxes + 1])
    scores = np.zeros((600, columns + (background > 0)), np.float32)
    if background:
        scores[:, 0] = 1
        scores[:4, 0] = 1 - np.tile(SCORES, 2)
    for row, (number, score) in enumerate(zip(np.tile(NUMBERS, 2), [*SCORES, 0.6, 0.6], strict=True)):
        scores[row, (number if columns > 1 else 0) + (background > 0)] = score
        scores[row, 0] = 1 - score if background else scores[row, 0]
    return candidates, scores


def ultraface(boxes: Boxes) -> Outputs:
    candidates, scores = pairs(boxes, background=1, columns=1)
    return {"scores": scores[np.newaxis], "boxes": (candidates / SIDES)[np.newaxis]}


def pytorch_yolov4(boxes: Boxes) -> Outputs:
    candidates, scores = pairs(boxes)
    return {"boxes": (candidates / SIDES)[np.newaxis, :, np.newaxis], "confs": scores[np.newaxis]}


def paddle_raw(boxes: Boxes) -> Outputs:
    candidates, scores = pairs(boxes)
    return {"tmp_boxes": candidates[np.newaxis], "tmp_scores": scores.T[np.newaxis]}


def centres(boxes: Boxes) -> Outputs:
    candidates, scores = pairs(boxes)
    return {"boxes": centred(candidates)[np.newaxis], "scores": scores[np.newaxis]}


def single(names: str, further: Outputs | None = None) -> Callable[[Boxes], Outputs]:
    return lambda boxes: dict(zip(names.split(), (boxes, SCORES, NUMBERS), strict=True)) | dict(further or {})


def ranked(boxes: Boxes) -> Outputs:
    return {"labels": padded(NUMBERS), "boxes": padded(boxes), "scores": padded(SCORES)}


class Case(NamedTuple):
    """One exporter: its outputs for boxes in input pixels, and what model-settings.json has to declare."""

    exporter: str
    outputs: Callable[[Boxes], Outputs]
    shape: tuple[int, ...] = (1, 3, HEIGHT, WIDTH)
    declared: Mapping[str, Any] = {}
    inputs: Mapping[str, tuple[int, int]] = {}
    datatype: int = TensorProto.FLOAT
    labels: list[str] = LABELS


SINGLE, LAST = (3, HEIGHT, WIDTH), (1, HEIGHT, WIDTH, 3)
PADDLE = {"im_shape": (TensorProto.FLOAT, 2), "scale_factor": (TensorProto.FLOAT, 2)}
TORCHVISION = single("boxes scores labels")
NO_BACKGROUND = {"background": "none"}
CORNERS = {"boxes": "xyxy", "unit": "pixel", **NO_BACKGROUND}
CASES = [
    Case("MMDeploy", mmdeploy),
    Case("TensorFlow OD-API", tensorflow, LAST, datatype=TensorProto.UINT8),
    Case("TensorFlow OD-API, background named", tensorflow, LAST, datatype=TensorProto.UINT8, labels=["???", *LABELS]),
    Case("YOLOv7, TensorRT NMS", counted("num_dets", "det_boxes det_scores det_classes")),
    Case("YOLOv8, TensorRT NMS", counted("num_dets", "bboxes scores labels")),
    Case("MMYOLO easydeploy", counted("num_dets", "boxes scores labels")),
    Case("YOLO-NAS batch", counted("num_predictions", "pred_boxes pred_scores pred_classes", "graph2_", INT64)),
    Case("YOLO-NAS flat", flat("graph2_flat_predictions", "image", "box", "score", "class")),
    Case("YOLOv7 end to end", flat("output", "image", "box", "class", "score"), declared={"rows": "box-class-score"}),
    Case("PaddleDetection", paddle, inputs=PADDLE),
    Case("PaddleDetection without NMS", paddle_raw, inputs=PADDLE),
    Case("effdet", effdet, declared={"background": 0}),
    Case("UltraFace", ultraface, labels=["face"]),
    Case("UltraFace, background named", ultraface, labels=["background", "face"]),
    Case("pytorch-YOLOv4", pytorch_yolov4),
    Case("pairs with centres", centres, declared={"boxes": "cxcywh"}),
    Case("torchvision without background", TORCHVISION, SINGLE, labels=["a", "cat", "dog"], declared=NO_BACKGROUND),
    Case("torchvision, background named", TORCHVISION, SINGLE, labels=["__background__", "cat", "dog"]),
    Case("torchvision, background left out", TORCHVISION, SINGLE, labels=["cat", "dog"]),
    Case("Detectron2", single("pred_boxes scores pred_classes", {"image_size": np.array([9, 9])}), SINGLE),
    Case("Detectron2 without names", single("x.4 y.2 z.9"), SINGLE, declared=CORNERS),
    Case("RT-DETR", ranked, inputs={"orig_target_sizes": (TensorProto.INT64, 2)}),
]  # fmt: skip


def input_boxes(resize: str) -> Boxes:
    """Return the objects in pixels of the input."""
    scale = np.array([0.5, 256 / 480 if resize == "stretch" else 0.5] * 2)
    return (np.array(OBJECTS) * scale + (0 if resize == "stretch" else np.array([0, 8, 0, 8]))).astype(np.float32)
