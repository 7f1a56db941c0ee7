"""Baseline files, also those of released versions."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.plugins.drift.baseline import Baseline, read_baseline, write_baseline
from app.plugins.drift.measurement import image_features
from app.plugins.drift.sample import DriftError
from tasks.vision.image import decode_image
from tests.support.data.drift_samples import sample


def write_valid(folder: Path) -> Path:
    """Write a valid baseline, and return its path."""
    baseline = Baseline(sample=sample(40, with_predictions=True), embedder="e.onnx", embedder_digest="d", model="m")
    write_baseline(folder / "b.npz", baseline)
    return folder / "b.npz"


def change_file(path: Path, **arrays: Any) -> Path:
    """Replace arrays of a baseline file; `header` replaces fields of the header."""
    with np.load(path) as archive:
        contents = {name: archive[name] for name in archive.files}
    header = json.loads(contents["header"].tobytes()) | arrays.pop("header", {})
    contents["header"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **{name: array for name, array in (contents | arrays).items() if array is not None})
    return path


def test_baseline_round_trips(tmp_path: Path) -> None:
    read = read_baseline(write_valid(tmp_path))
    original = sample(40, with_predictions=True)
    assert (read.embedder, read.embedder_digest, read.model) == ("e.onnx", "d", "m")
    for name in original.__struct_fields__:
        np.testing.assert_array_equal(getattr(read.sample, name), getattr(original, name))
    assert [path.name for path in tmp_path.iterdir()] == ["b.npz"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"header": {"format": 2}}, "format 2, and this program reads format 1"),
        ({"header": {"ids": ["x"]}}, "its parts are not of the same 1 images"),
        ({"header": {"labels": None}}, "labels"),
        ({"numbers": None}, "it has no numbers"),
        ({"counts": np.zeros((40, 2), np.float32)}, "its counts are float32 of 2 dimensions"),
        ({"numbers": np.full((40, 17), np.inf)}, "not finite"),
        ({"counts": np.full((40, 2), -1)}, "some of its counts are below 0"),
        ({"numbers": np.array([[{}]], object)}, "Object arrays cannot be loaded"),
    ],
)
def test_inconsistent_baseline_is_rejected(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(DriftError, match=message):
        read_baseline(change_file(write_valid(tmp_path), **change))


def test_file_that_is_not_a_baseline_is_rejected(tmp_path: Path) -> None:
    path = write_valid(tmp_path)
    for content in (path.read_bytes()[:-300], b"", b"PK\x03\x04", b"no archive", b"\x93NUMPY"):
        path.write_bytes(content)
        with pytest.raises(DriftError, match="is not a baseline"):
            read_baseline(path)
    with pytest.raises(DriftError, match="cannot be read: No such file"):
        read_baseline(tmp_path / "none.npz")


def test_decompression_bomb_is_rejected(tmp_path: Path) -> None:
    path = tmp_path / "b.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("numbers.npy", b"x")
        archive.infolist()[0].file_size = (1 << 31) - 10
    with pytest.raises(DriftError, match="more than 1 GiB"):
        read_baseline(path)


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
