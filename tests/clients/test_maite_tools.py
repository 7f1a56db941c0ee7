"""Compare JATIC_ONNX models with modelmaite, which checkmaite runs them with, and dataeval; check values with MAITE."""

import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from app.plugins.jatic.maite import as_maite
from tests.support.models.jatic_models import LABELS, Model, write_classifier, write_detector
from tests.support.servers.client_environments import python_with, run_checks
from tests.support.servers.server_process import ROOT

Numbers = NDArray[np.float32]


def _sides(height: int, width: int, channels: str = "RGB") -> dict[str, Any]:
    return {"input": {"channels": channels, "height": height, "width": width}}


_GREY = {"shape": ("b", 1, "h", "w"), **_sides(10, 20, "GRAYSCALE")}
_IMAGE, _BATCH = (1, 3, 33, 47), (3, 3, 33, 47)
CASES: Mapping[str, tuple[Callable[[Path], Model], tuple[int, ...]]] = {
    "detector, labels as object": (write_detector, _IMAGE),
    "detector, labels as list": (partial(write_detector, labels=LABELS), _IMAGE),
    "detector, grey": (partial(write_detector, **_GREY), _IMAGE),
    "detector, sides -1": (partial(write_detector, **_sides(-1, -1)), _IMAGE),
    "detector, batch of 3": (write_detector, _BATCH),
    "classifier": (write_classifier, _IMAGE),
    "classifier, grey": (partial(write_classifier, **_GREY), _IMAGE),
    "classifier, grey image": (write_classifier, (1, 1, 33, 47)),
    "classifier, sides -1": (partial(write_classifier, **_sides(-1, -1)), _IMAGE),
    "classifier, only width -1": (partial(write_classifier, **_sides(10, -1)), _IMAGE),
    "classifier, only height -1": (partial(write_classifier, **_sides(-1, 20)), (2, 3, 33, 47)),
    "classifier, RGBA": (write_classifier, (1, 4, 33, 47)),
    "classifier, RGBA to grey": (partial(write_classifier, **_GREY), (1, 4, 33, 47)),
    "classifier, fixed batch of 3": (partial(write_classifier, shape=(3, 3, 10, 20), batchSize=3), _BATCH),
    "classifier, 480x640 to 64x64": (partial(write_classifier, **_sides(64, 64)), (2, 3, 480, 640)),
    "classifier, 9x12 to 64x48": (partial(write_classifier, **_sides(64, 48)), (1, 3, 9, 12)),
}
"""Tiny models whose scores depend on how images are resized, and the (count, channels, height, width) of images."""


# dataeval takes four of them differently, or not at all.
@pytest.mark.parametrize(("loader", "count"), [("modelmaite", 16), ("dataeval", 12)])
@pytest.mark.verifies("scores as in modelmaite", "jatic")
def test_jatic_models_answer_as_in_other_loaders(tmp_path: Path, loader: str, count: int) -> None:
    for name, (write, shape) in CASES.items():
        write(folder := tmp_path / name)
        if name.startswith("detector"):
            (folder / "detector").touch()
        np.savez(folder / "images.npz", images=np.random.default_rng(0).integers(0, 256, shape, np.uint8))
    command = [str(python_with(loader)), "-m", f"tests.clients.with_{loader}", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    files = list(tmp_path.glob(f"*/{loader}.npz"))
    assert len(files) == count
    for file in files:
        expected, images = np.load(file), np.load(file.parent / "images.npz")["images"]
        for index, answer in enumerate(as_maite(file.parent)(list(images))):
            assert_same(answer, {name: expected[name][index] for name in expected}, file.parent.name)


def assert_same(answer: Any, expected: Mapping[str, Numbers], name: str) -> None:
    """Compare scores, and boxes in pixels."""
    if "boxes" not in expected:
        np.testing.assert_allclose(answer, expected["scores"], rtol=0, atol=1e-5, err_msg=name)
        return
    # Unused slots and the background are no objects here.
    kept = (expected["scores"] > 0) & (expected["labels"] != 0)
    order = np.flatnonzero(kept)[(-expected["scores"][kept]).argsort(kind="stable")]
    assert len(order) > 0
    assert answer.labels.tolist() == expected["labels"][order].tolist(), name
    np.testing.assert_allclose(answer.scores, expected["scores"][order], rtol=0, atol=1e-5, err_msg=name)
    np.testing.assert_allclose(answer.boxes, expected["boxes"][order], rtol=0, atol=1e-3, err_msg=name)


def test_values_of_jatic_models_pass_spotcheck_of_maite(tmp_path: Path) -> None:
    write_classifier(tmp_path / "image_classification")
    write_detector(tmp_path / "object_detection")
    run_checks("maite", "with_maite", str(tmp_path))
