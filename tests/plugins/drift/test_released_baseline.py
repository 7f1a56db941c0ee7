"""A baseline that release 0.1.0 wrote, which servers keep beside their models."""

import json
from pathlib import Path

import numpy as np
import pytest

from app.plugins.drift.baseline import read_baseline
from app.plugins.drift.measurement import image_features
from tasks.vision.image import decode_image

PHOTO = Path(__file__).parents[3] / "fixtures" / "images" / "photo.jpg"
FEATURES = {
    "brightness": 119.47389705882352, "contrast": 30.809618476951098, "sharpness": 6.08340311050415,
    "saturation": 0.43005692958831787, "red": 147.69770220588236, "green": 111.43731617647059,
    "blue": 86.80799632352941, "red deviation": 30.799799378875232, "green deviation": 31.000950604543203,
    "blue deviation": 36.311567777240946, "dark pixels": 0.002022058823529412, "bright pixels": 0.0,
    "aspect": 0.5881649327595001, "size": 17.045802313751263,
}  # fmt: skip
"""What that release measured of the photograph."""


def test_baseline_of_the_last_release_stays_valid(tmp_path: Path) -> None:
    header = {
        "format": 1, "ids": [str(number) for number in range(30)], "task_type": "OBJECT_DETECTION", "labels": ["cat"],
        "features": [*FEATURES, "findings", "best score", "mean score"], "metadata": [{"camera": "north"}] * 30,
        "embedder": "", "embedder_digest": "", "model": "m", "source": "30 images", "created": "2026-11-21T00:00:00Z",
    }  # fmt: skip
    numbers = np.tile([*FEATURES.values(), 1.0, 0.9, 0.9], (30, 1))
    path = tmp_path / "drift-baseline.npz"
    arrays = {"numbers": numbers, "embeddings": np.zeros((30, 0), np.float32), "counts": np.ones((30, 1), np.int64)}
    np.savez(path, allow_pickle=False, header=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    sample = read_baseline(path).sample
    assert list(sample.features)[: len(FEATURES)] == list(FEATURES)
    assert sample.numbers[0][: len(FEATURES)] == pytest.approx(image_features(decode_image(PHOTO.read_bytes())))
