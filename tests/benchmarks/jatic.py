"""Print the largest differences between JATIC_ONNX models served here and those that modelmaite and dataeval run.

Each graph is tiny, and its scores depend on how images are resized. The program fails if a difference is too large.
Usage: ``python -m tests.benchmarks.jatic`` (seconds; the first time it installs both).
"""

import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from app.plugins.jatic.maite import as_maite
from tests.support.models.jatic_models import LABELS, Model, write_classifier, write_detector
from tests.support.servers.client_environments import python_with
from tests.support.servers.server_process import ROOT

MAX_SCORE_DIFFERENCE = 1e-5
MAX_BOX_DIFFERENCE = 1e-3
"""Pixels."""
LOADERS = {"modelmaite": "modelmaite 0.2.0", "dataeval": "dataeval 1.1.4"}


class Case(msgspec.Struct, frozen=True):
    """A model, and the (count, channels, height, width) of its images."""

    write: Callable[[Path], Model]
    images: tuple[int, int, int, int] = (1, 3, 33, 47)


def _sides(height: int, width: int, channels: str = "RGB") -> dict[str, Any]:
    return {"input": {"channels": channels, "height": height, "width": width}}


_GREY = {"shape": ("b", 1, "h", "w"), **_sides(10, 20, "GRAYSCALE")}


CASES: Mapping[str, Case] = {
    "detector 33x47 to 10x20, labels as object": Case(write_detector),
    "detector, labels as list": Case(partial(write_detector, labels=LABELS)),
    "detector, grey": Case(partial(write_detector, **_GREY)),
    "detector, sides -1": Case(partial(write_detector, **_sides(-1, -1))),
    "detector, batch of 3": Case(write_detector, (3, 3, 33, 47)),
    "classifier 33x47 to 10x20": Case(write_classifier),
    "classifier, grey": Case(partial(write_classifier, **_GREY)),
    "classifier, grey image": Case(write_classifier, (1, 1, 33, 47)),
    "classifier, sides -1": Case(partial(write_classifier, **_sides(-1, -1))),
    "classifier, only width -1": Case(partial(write_classifier, **_sides(10, -1))),
    "classifier, only height -1": Case(partial(write_classifier, **_sides(-1, 20)), (2, 3, 33, 47)),
    "classifier, RGBA": Case(write_classifier, (1, 4, 33, 47)),
    "classifier, RGBA to grey": Case(partial(write_classifier, **_GREY), (1, 4, 33, 47)),
    "classifier, fixed batch of 3": Case(partial(write_classifier, shape=(3, 3, 10, 20), batchSize=3), (3, 3, 33, 47)),
    "classifier, 480x640 to 64x64": Case(partial(write_classifier, **_sides(64, 64)), (2, 3, 480, 640)),
    "classifier, 9x12 to 64x48": Case(partial(write_classifier, **_sides(64, 48)), (1, 3, 9, 12)),
}


class Difference(msgspec.Struct, frozen=True):
    """The largest differences of scores, and of boxes in pixels; infinite if another class or number was found.

    Classifiers have no boxes.
    """

    case: str
    loader: str
    scores: float
    boxes: float | None = None


def differences(folder: Path, *loaders: str) -> list[Difference]:
    """Run every case with the loaders in their own environments, and here."""
    images = {name: _write_case(folder / f"case{index:02}", case) for index, (name, case) in enumerate(CASES.items())}
    for loader in loaders:
        command = [str(python_with(loader)), "-m", f"tests.clients.with_{loader}", str(folder)]
        subprocess.run(command, cwd=ROOT, check=True, timeout=120)
    return [
        _difference(name, loader, file, images[name])
        for index, name in enumerate(CASES)
        for loader in loaders
        # dataeval takes some kinds of images differently, or not at all.
        if (file := folder / f"case{index:02}" / f"{loader}.npz").exists()
    ]


def _write_case(folder: Path, case: Case) -> NDArray[np.uint8]:
    case.write(folder)
    if "boxes" in (folder / "model.onnx").read_bytes().decode("latin-1"):
        (folder / "detector").touch()
    pixels = np.random.default_rng(0).integers(0, 256, case.images, np.uint8)
    np.savez(folder / "images.npz", images=pixels)
    return pixels


def _difference(name: str, loader: str, file: Path, images: NDArray[np.uint8]) -> Difference:
    answers, expected = as_maite(file.parent)(list(images)), np.load(file)
    if "boxes" not in expected:
        return Difference(name, loader, _largest(np.stack(answers), expected["scores"]))
    scores = boxes = 0.0
    for index, answer in enumerate(answers):
        # Unused slots and the background are no objects here.
        kept = (expected["scores"][index] > 0) & (expected["labels"][index] != 0)
        order = np.flatnonzero(kept)[(-expected["scores"][index][kept]).argsort(kind="stable")]
        if answer.labels.tolist() != expected["labels"][index][order].tolist():
            return Difference(name, loader, float("inf"), float("inf"))
        scores = max(scores, _largest(answer.scores, expected["scores"][index][order]))
        boxes = max(boxes, _largest(answer.boxes, expected["boxes"][index][order]))
    return Difference(name, loader, scores, boxes)


def _largest(found: NDArray[Any], expected: NDArray[Any]) -> float:
    return float(np.abs(found - expected).max()) if found.shape == expected.shape and found.size else float("inf")


def main() -> None:
    """Print the table, and fail when a difference is too large."""
    with tempfile.TemporaryDirectory() as folder:
        found = differences(Path(folder), *LOADERS)
    table = Table("graph", "loader", "scores", "boxes, pixels", title="Largest differences to Charioteer")
    for difference in found:
        boxes = "" if difference.boxes is None else f"{difference.boxes:.1e}"
        table.add_row(difference.case, LOADERS[difference.loader], f"{difference.scores:.1e}", boxes)
    Console(width=120).print(table)
    sys.exit(any(map(is_too_large, found)))


def is_too_large(difference: Difference) -> bool:
    """Return whether a difference exceeds the tolerances."""
    return difference.scores > MAX_SCORE_DIFFERENCE or (difference.boxes or 0) > MAX_BOX_DIFFERENCE


if __name__ == "__main__":
    main()
