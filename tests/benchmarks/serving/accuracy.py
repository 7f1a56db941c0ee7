"""Measure the accuracy of models on generated scenes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from fixtures.scenes import DETECT, Recipe, make_scene
from tests.benchmarks.serving.processes import ROOT
from tests.benchmarks.serving.workload import encode_scene


def figures(dataset: Path, model: Path) -> dict[str, float]:
    """Return the figures of `charioteer evaluate`."""
    report = dataset.parent / "report.json"
    command = [sys.executable, "-m", "app", "evaluate", str(dataset), "--model", str(model), "--json", str(report)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return json.loads(report.read_text())["figures"]


def write_dataset(folder: Path, recipe: Recipe, size: tuple[int, int], scenes: int, seed: int = 20_000) -> Path:
    """Write scenes as JPEG, and their boxes and outlines in COCO format; return the file of labels.

    Classes have the names of the fixture detector for `DETECT`, and of the segmenter for other recipes.
    """
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    width, height = size
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    categories: dict[str, int] = {}
    for number in range(scenes):
        scene = make_scene(rng, recipe, width, height)
        name = f"{number:04}.jpg"
        (folder / name).write_bytes(encode_scene(scene))
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        for item in scene.items:
            left, top, right, bottom = item.box
            label = item.label if recipe is DETECT else item.shape
            outlines, _ = cv2.findContours(item.mask.astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": categories.setdefault(label, len(categories) + 1),
                    "bbox": [left, top, right - left, bottom - top],
                    "segmentation": [outline.ravel().tolist() for outline in outlines if len(outline) > 2],
                    "area": (right - left) * (bottom - top),
                    "iscrowd": 0,
                }
            )
    coco_categories = [{"id": number, "name": label} for label, number in categories.items()]
    labels = folder / "labels.json"
    labels.write_text(json.dumps({"images": images, "annotations": annotations, "categories": coco_categories}))
    return labels
