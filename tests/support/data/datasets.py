"""Write small datasets of every format into a folder."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from app.plugins.evaluation.dataset import EvaluationError
from app.plugins.evaluation.datasets.read import DatasetOptions, read_dataset
from tests.support.data.evaluation_samples import write_image


def check_rejected(path: Path, message: str, **options: Any) -> None:
    """Check that a dataset cannot be read, for a reason that matches a pattern."""
    with pytest.raises(EvaluationError, match=message):
        read_dataset(path, DatasetOptions(**options))


def write_coco_dataset(folder: Path, annotations: Sequence[Mapping[str, Any]], **changes: Any) -> Path:
    """Write two images of 64 x 48 pixels, the classes cat (1) and dog (2), and `annotations`."""
    for name in ("a.jpg", "b.jpg"):
        write_image(folder / "images" / name)
    images = [
        {"id": 1, "file_name": "a.jpg", "width": 64, "height": 48, "camera": "north", "license": 3},
        {"id": 2, "file_name": "b.jpg", "width": 64, "height": 48, "camera": "south", "frame": 7},
    ]
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    content = {"images": images, "categories": categories, "annotations": annotations, **changes}
    path = folder / "annotations" / "instances.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def coco_annotation(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {"id": number, "image_id": 1, "category_id": 1, "bbox": [10, 8, 20, 16], "iscrowd": 0, **changes}


def write_yolo_dataset(folder: Path, labels: Mapping[str, str], data_yaml: str | None = None) -> Path:
    """Write an image of 64 x 48 pixels for each of `labels`, with the lines of its label file."""
    for name, lines in labels.items():
        write_image(folder / "images" / "val" / f"{name}.jpg")
        path = folder / "labels" / "val" / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(lines)
    path = folder / "data.yaml"
    path.write_text(data_yaml or "val: images/val\nnames: {0: cat, 1: dog}\n")
    return path


def write_image_folder(folder: Path, classes: Mapping[str, int]) -> Path:
    for label, count in classes.items():
        for index in range(count):
            write_image(folder / label / f"{index}.jpg")
    return folder
