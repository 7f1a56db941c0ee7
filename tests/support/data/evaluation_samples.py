"""Create items and findings for tests in one line."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from app.plugins.evaluation.answers import EvaluatedItem, PredictedObject
from app.plugins.evaluation.dataset import Dataset, Item, LabelledObject
from tasks.task import TaskType

Box = tuple[float, float, float, float]


def item(
    name: str = "a.jpg", objects: Sequence[LabelledObject] = (), *, size: tuple[int, int] = (640, 480), **fields: Any
) -> Item:
    return Item(id=name, image=Path(name), width=size[0], height=size[1], objects=tuple(objects), **fields)


def dataset(
    folder: Path, *items: Item, task: TaskType = TaskType.IMAGE_CLASSIFICATION, labels: Sequence[str] = ()
) -> Dataset:
    return Dataset(path=folder, format="image-folder", tasks=(task,), labels=tuple(labels), items=items)


def detection_sample(
    ground_truth: Sequence[tuple[str, Box]],
    detections: Sequence[tuple[str, float, Box]],
    name: str = "a.jpg",
    metadata: Mapping[str, str] | None = None,
) -> EvaluatedItem:
    """Return ground truth boxes and detected boxes, axis-aligned."""
    objects = [LabelledObject(label=label, box=box) for label, box in ground_truth]
    predictions = tuple(PredictedObject(label=label, score=score, box=box) for label, score, box in detections)
    return EvaluatedItem(item=item(name, objects, metadata=metadata or {}), predictions=predictions)


def classification_sample(
    true_label: str, scores: Mapping[str, float], name: str, metadata: Mapping[str, str] | None = None
) -> EvaluatedItem:
    predictions = tuple(PredictedObject(label=label, score=score) for label, score in scores.items())
    return EvaluatedItem(item=item(name, label=true_label, metadata=metadata or {}), predictions=predictions)


def write_image(path: Path, width: int = 64, height: int = 48, colour: tuple[int, int, int] = (40, 90, 160)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.full((height, width, 3), colour, np.uint8))
    return path
