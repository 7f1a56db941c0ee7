"""Run JATIC_ONNX models with dataeval on images in files; runs in its own environment."""

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np


def main(folder: str) -> None:
    """Write dataeval.npz beside the images.npz of each model below `folder`, with boxes in pixels.

    Models whose images dataeval rejects, or turns to grey in its own way, are left out.
    """
    models: Any = importlib.import_module("dataeval.models")
    for file in sorted(Path(folder).glob("*/images.npz")):
        model, images = file.parent, np.load(file)["images"]
        expected = json.loads((model / "model-metadata.json").read_bytes())["io"]["input"]
        _, channels, height, width = images.shape
        if channels == 4 or (channels, expected["channels"]) == (3, "GRAYSCALE"):
            continue
        is_detector = (model / "detector").exists()
        wrapper = models.OnnxObjectDetector if is_detector else models.OnnxImageClassifier
        # It has no sides of -1.
        sides = [
            own if side == -1 else side for side, own in ((expected["height"], height), (expected["width"], width))
        ]
        answers = wrapper(model / "model.onnx", model / "model-metadata.json", image_size=sides)(list(images))
        if is_detector:
            arrays = {
                "boxes": np.stack([answer.boxes for answer in answers]) * [width, height, width, height],
                "labels": np.stack([answer.labels for answer in answers]),
                "scores": np.stack([answer.scores.max(axis=1) for answer in answers]),
            }
        else:
            arrays = {"scores": np.stack(answers)}
        np.savez(model / "dataeval.npz", allow_pickle=False, **arrays)


if __name__ == "__main__":
    main(sys.argv[1])
