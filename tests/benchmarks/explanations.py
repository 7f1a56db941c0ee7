"""Compare saliency maps of the fixture models with random maps, on generated scenes.

Deletion and insertion are areas under the curve of the score while the most salient pixels go or come; the pointing
game counts how often the most salient pixel lies on the object. Random maps are as smooth as the others. Usage:
``python -m tests.benchmarks.explanations`` (or ``make bench-explanations``).
"""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from app.core.assembly.models import find_models, load
from app.core.engine.models.servable import Servable
from app.core.settings.server import ModelOptions
from app.plugins.explanations.pixels import (
    DEFAULT_SAMPLES,
    ExplanationMethod,
    ExplanationParameters,
    ExplanationTarget,
    explain_target,
    sample_count,
)
from app.plugins.explanations.request import explanation_targets
from fixtures.scenes import CLASSIFY, DETECT, ORIENT, SEGMENT, Scene, make_scenes
from tasks.inference.limits import Limits
from tasks.inference.tensor import Datatype, Tensor
from tasks.vision.image import Image
from tests.support.data.requests import request

_SEED = 7001
_STEPS = 20
"""Steps of deletion and insertion."""
RANDOM_MAPS = 3
_BLUR = 0.15
Map = NDArray[np.float32]


class Fidelity(NamedTuple):
    """Metrics of one map of one prediction."""

    deletion: float
    insertion: float
    hit: bool


MODELS = {"classifier": CLASSIFY, "detector": DETECT, "oriented-detector": ORIENT, "segmenter": SEGMENT}
"""The models to explain, and the scenes that they were trained for."""
WITHOUT_COLOUR = ("oriented-detector", "segmenter")
"""Models whose labels are shapes."""


def main() -> None:
    """Measure, print a table, and fail when a method is not clearly better than chance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=int, default=6, help="for each model")
    count = parser.parse_args().scenes
    cv2.setNumThreads(1)
    table = Table(
        "model", "map", "deletion (low)", "insertion (high)", "pointing game", "findings", "s an image",
        title=f"{count} scenes a model, seed {_SEED}, {DEFAULT_SAMPLES} samples, grid {ExplanationParameters().grid}",
    )  # fmt: skip
    failed = False
    sources_by_name = {source.name: source for source in find_models(ModelOptions())}
    for model, recipe in MODELS.items():
        servable = load(sources_by_name[model])
        scenes = list(make_scenes(_SEED, recipe, count))
        chance = _Row(_measure_random_maps(servable, scenes, model))
        for method in ExplanationMethod:
            row = _Row(_measure_method(servable, scenes, model, ExplanationParameters(method=method, seed=_SEED)))
            table.add_row(model, method, *row.cells, f"{row.seconds / len(scenes):.2f}")
            failed |= not row.clearly_better_than(chance)
        table.add_row(model, f"random, {RANDOM_MAPS} seeds", *chance.cells, "")
    Console(width=130).print(table)
    sys.exit(failed)


class _Row:
    def __init__(self, measurements: Iterable[tuple[Fidelity, float]]) -> None:
        rows = list(measurements)
        self.seconds = sum(seconds for _, seconds in rows)
        self.mean = np.mean([(row.deletion, row.insertion, row.hit) for row, _ in rows], axis=0)
        self.cells = [*(f"{value:.3f}" for value in self.mean), str(len(rows))]

    def clearly_better_than(self, chance: "_Row") -> bool:
        deletion, insertion, hits = self.mean - chance.mean
        return deletion < -0.05 and insertion > 0.05 and hits > 0.2


def _measure_method(
    servable: Servable, scenes: Sequence[Scene], model: str, parameters: ExplanationParameters
) -> Iterator[tuple[Fidelity, float]]:
    for scene in scenes:
        subject = _subject(servable, scene)
        started = time.perf_counter()
        heatmaps = explain_target(subject, parameters, sample_count(subject, parameters, DEFAULT_SAMPLES), lambda: True)
        seconds = time.perf_counter() - started
        for index, heatmap in enumerate(heatmaps):
            yield _measure(subject, index, heatmap.saliency, scene, model), seconds
            seconds = 0.0


def _measure_random_maps(servable: Servable, scenes: Sequence[Scene], model: str) -> Iterator[tuple[Fidelity, float]]:
    rng = np.random.default_rng(0)
    for scene in scenes:
        subject = _subject(servable, scene)
        height, width = scene.image.shape[:2]
        for index in range(subject.prediction_count):
            for _ in range(RANDOM_MAPS):
                coarse = rng.random((8, 8)).astype(np.float32)
                saliency: Any = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR)
                yield _measure(subject, index, saliency, scene, model), 0.0


def _subject(servable: Servable, scene: Scene) -> ExplanationTarget:
    tensor = Tensor(name="image", datatype=Datatype.UINT8, data=scene.image)
    _, (subject,) = explanation_targets(servable, request(tensor), Limits(), None, 3)
    return subject


def _measure(subject: ExplanationTarget, index: int, saliency: Map, scene: Scene, model: str) -> Fidelity:
    pixels = subject.item.image.pixels
    # Petsiuk et al. 2018, section 4.2: pixels become the mean colour, or appear in a blurred copy.
    mean = np.broadcast_to(np.rint(pixels.mean(axis=(0, 1))).astype(np.uint8), pixels.shape)
    blurred = np.asarray(cv2.GaussianBlur(pixels, (0, 0), _BLUR * max(pixels.shape[:2])), np.uint8)
    areas: list[float] = []
    for before, after in ((pixels, mean), (blurred, pixels)):
        copies = [Image(copy) for copy in _replaced(before, after, saliency)]
        scores = subject.scores(copies, 1.0)[:, index].astype(np.float64)
        areas.append(float((scores[1:] + scores[:-1]).mean() / 2))
    y, x = np.unravel_index(int(saliency.argmax()), saliency.shape)
    label: str = subject.predictions.labels[index]
    without_colour = model in WITHOUT_COLOUR
    hit = any(item.mask[y, x] for item in scene.items if label == (item.shape if without_colour else item.label))
    return Fidelity(areas[0], areas[1], hit)


def _replaced(before: NDArray[np.uint8], after: NDArray[np.uint8], saliency: Map) -> Iterator[NDArray[np.uint8]]:
    """Yield copies with more and more of the pixels replaced, the most salient ones first."""
    rank = np.empty(saliency.size, np.int64)
    rank[np.argsort(-saliency, axis=None, kind="stable")] = np.arange(saliency.size)
    for step in range(_STEPS + 1):
        replaced = rank.reshape(saliency.shape) < round(saliency.size * step / _STEPS)
        yield np.where(replaced[..., np.newaxis], after, before)


if __name__ == "__main__":
    main()
