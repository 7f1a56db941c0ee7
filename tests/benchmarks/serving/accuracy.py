"""Measure the accuracy of the fixture detector with JPEGs decoded at a fraction of their size."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from fixtures.scenes import DETECT, make_scene
from tests.benchmarks.serving.processes import ROOT
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.workload import Workload

__all__ = ("accuracy",)

_SIZES = {(640, 480): 2, (1280, 960): 4}
"""Width and height of scenes, and the reduction of decoding for a model of 192x192."""
_FIGURES = ("map_coco", "ap50", "ap75")
_SEED = 20_000
_QUALITY = 90


def accuracy(workload: Workload, scenes: int) -> Section:
    """Compare average precision with full and reduced JPEGs."""
    folder = workload.folder.parent / "accuracy"
    models = {
        variant: _detector(folder / variant, reduced=variant != "whole") for variant in ("whole", "reduced_decode")
    }
    rows: list[list[Cell]] = []
    for (width, height), shrink in _SIZES.items():
        dataset = _dataset(folder / f"{width}", width, height, scenes)
        for variant, model in models.items():
            report = folder / "report.json"
            command = [sys.executable, "-m", "app", "evaluate", str(dataset), "--model", str(model)]
            subprocess.run([*command, "--json", str(report)], cwd=ROOT, check=True, capture_output=True)
            figures = json.loads(report.read_text())["figures"]
            decoded_size = "full size" if variant == "whole" else f"1/{shrink} of each side"
            rows.append([f"{width}x{height}", decoded_size, *(f"{figures[name]:.4f}" for name in _FIGURES)])
    about = (
        f"`charioteer evaluate` of the fixture detector on {scenes} generated JPEG scenes of each size, with and "
        "without `reduced_decode`. The detector sees 192x192 pixels."
    )
    columns = ["scenes", "decoded", *_FIGURES]
    return Section(title="Accuracy with reduced decoding", about=about, columns=columns, rows=rows)


def _detector(folder: Path, *, reduced: bool) -> Path:
    shutil.copytree(ROOT / "fixtures" / "models" / "detector", folder)
    settings = {"name": "detector", "preprocessing": {"reduced_decode": reduced}}
    (folder / "model-settings.json").write_text(json.dumps(settings))
    return folder


def _dataset(folder: Path, width: int, height: int, scenes: int) -> Path:
    """Write scenes as JPEG, and their boxes in COCO format."""
    folder.mkdir()
    rng = np.random.default_rng(_SEED)
    images: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    categories: dict[str, int] = {}
    for number in range(scenes):
        scene = make_scene(rng, DETECT, width, height)
        name = f"{number:04}.jpg"
        pixels = cv2.cvtColor(scene.image, cv2.COLOR_RGB2BGR)
        cv2.imwrite(str(folder / name), pixels, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])
        images.append({"id": number, "file_name": name, "width": width, "height": height})
        for item in scene.items:
            left, top, right, bottom = item.box
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": categories.setdefault(item.label, len(categories) + 1),
                    "bbox": [left, top, right - left, bottom - top],
                    "area": (right - left) * (bottom - top),
                    "iscrowd": 0,
                }
            )
    coco_categories = [{"id": number, "name": label} for label, number in categories.items()]
    labels = folder / "labels.json"
    labels.write_text(json.dumps({"images": images, "annotations": annotations, "categories": coco_categories}))
    return labels
