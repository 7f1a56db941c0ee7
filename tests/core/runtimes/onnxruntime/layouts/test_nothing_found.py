"""Run a model of every layout on an image in which it finds nothing."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

from app.core.plugins import registry
from app.core.runtimes.onnxruntime.loading import load
from tasks.task import TaskType
from tests.core.runtimes.onnxruntime import graphs
from tests.support.data.images import encode_image, rectangle
from tests.support.data.requests import file_input, predict
from tests.support.models.jatic_models import metadata, write_metadata

LABELS = ("cat", "dog", "fox")
LOW = -20.0
"""A logit with a score near 0."""


def blank(*shape: int, value: float = 0.0) -> NDArray[np.float32]:
    return np.full((1, *shape), value, np.float32)


def repeated(*scores: float) -> NDArray[np.float32]:
    return np.tile(np.array(scores, np.float32), (1, 9, 1))


DETECTION, SEGMENTATION = TaskType.OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION
ORIENTED = TaskType.ORIENTED_OBJECT_DETECTION
PROTOTYPES = {"output1": blank(2, 16, 16)}
CASES: dict[tuple[str, TaskType], dict[str, NDArray[np.float32]]] = {
    ("raw", DETECTION): {"output0": blank(7, 84)},
    ("raw", ORIENTED): {"output0": blank(8, 84)},
    ("raw", SEGMENTATION): {"output0": blank(9, 84), **PROTOTYPES},
    ("raw-transposed", DETECTION): {"output0": blank(84, 7)},
    ("raw-transposed", ORIENTED): {"output0": blank(84, 8)},
    ("raw-transposed", SEGMENTATION): {"output0": blank(84, 9), **PROTOTYPES},
    ("nms", DETECTION): {"output0": blank(300, 6)},
    ("nms", ORIENTED): {"output0": blank(300, 7)},
    ("nms", SEGMENTATION): {"output0": blank(300, 8), **PROTOTYPES},
    ("end2end", DETECTION): {"output0": blank(300, 6)},
    ("end2end", ORIENTED): {"output0": blank(300, 7)},
    ("end2end", SEGMENTATION): {"output0": blank(300, 8), **PROTOTYPES},
    ("yolov5", DETECTION): {"output": blank(60, 8)},
    ("yolox", DETECTION): {"output": blank(84, 8)},
    ("rf-detr", DETECTION): {"dets": blank(9, 4), "labels": blank(9, 4, value=LOW)},
    ("rf-detr", SEGMENTATION): {
        "dets": blank(9, 4), "labels": blank(9, 4, value=LOW), "masks": blank(9, 16, 16, value=LOW),
    },
    ("detr", DETECTION): {"logits": repeated(LOW, LOW, LOW, 0), "pred_boxes": blank(9, 4)},
    ("detr-sigmoid", DETECTION): {"logits": blank(9, 3, value=LOW), "pred_boxes": blank(9, 4)},
    ("detections", DETECTION): {"num_dets": blank(), "boxes": blank(9, 4), "labels": blank(9), "scores": blank(9)},
    ("detections", SEGMENTATION): {"dets": blank(9, 5), "labels": blank(9), "masks": blank(9, 28, 28)},
    ("yunet", DETECTION): {
        f"{kind}_{stride}": blank((64 // stride) ** 2, width)
        for kind, width in (("cls", 1), ("obj", 1), ("bbox", 4))
        for stride in (8, 16, 32)
    },
    ("mediapipe", DETECTION): {"regressors": blank(896, 16), "classificators": blank(896, 1, value=LOW)},
    ("jatic", DETECTION): {"boxes": blank(9, 4), "scores": blank(9, 3)},
    ("mask", SEGMENTATION): {"alpha": blank(1, 16, 16)},
    ("mask-logits", SEGMENTATION): {"logits": blank(1, 16, 16, value=LOW)},
    ("text-map", ORIENTED): {"maps": blank(1, 64, 64)},
    ("ctc", TaskType.IMAGE_TEXT_TO_TEXT): {"output0": repeated(1, 0, 0, 0)},
}  # fmt: skip
ALWAYS_FIND_SOMETHING = {
    "probabilities",
    "logits",
    "multi-label",
    "semantic",
    "class-map",
    "tensors",
    "embedding",
    "jatic",
}
"""Layouts whose outputs name a class for every image or pixel, or are returned unchanged; of jatic, the classifiers."""
ONE_CLASS = {"text-map", "yunet", "mediapipe", "mask", "mask-logits"}
SIDES = {"mediapipe": 128}


def test_every_layout_has_a_case() -> None:
    layouts = {(name, task) for layout in registry().layouts for name in layout.names for task in layout.task_types}
    assert layouts == set(CASES) | {pair for pair in layouts if pair[0] in ALWAYS_FIND_SOMETHING}


@pytest.mark.parametrize(("layout", "task_type"), CASES)
def test_image_without_findings_has_an_empty_answer(layout: str, task_type: TaskType, tmp_path: Path) -> None:
    outputs = CASES[layout, task_type]
    side = SIDES.get(layout, 64)
    options: dict[str, Any] = {"shape": ("batch", 3, side, side)}
    if layout == "jatic":
        options["name"] = "image"
        write_metadata(tmp_path, metadata("IMAGE_OBJECT_DETECTION", LABELS, input={}))
    file = graphs.constant(tmp_path / "model.onnx", outputs, **options)
    settings = {"layout": layout, "task_type": task_type, "labels": LABELS[:1] if layout in ONE_CLASS else LABELS}
    servable = load(graphs.source(file, **settings))
    predictions = predict(servable, file_input(*(encode_image(rectangle(width, 48)) for width in (48, 96))))
    for prediction in predictions:
        records = [msgspec.structs.asdict(record) for record in prediction.records()]
        assert records == [] or [record["answer"] for record in records] == [""]
    stacked = predictions[0].stack(predictions)
    assert [tensor.data.shape[0] for tensor in stacked] == [2] * len(stacked)
