"""Compare saliency maps of the fixture models with random maps, on generated scenes.

Deletion and insertion are areas under the curve of the score while the most salient pixels go or come; the pointing
game counts how often the most salient pixel lies on the object. Random maps are as smooth as the others. Usage:
``python -m tests.benchmarks.explanations`` (or ``make bench-explanations``).
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

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
from tasks.vision.image import Image
from tests.support.data.requests import pixel_input, request

_SEED = 7001
_STEPS = 20
"""Steps of deletion and insertion."""
RANDOM_MAPS = 3
_BLUR = 0.15
Map = NDArray[np.float32]
Maps = Callable[[ExplanationTarget], Iterable[tuple[int, Map]]]
"""Returns maps of an image, each with the index of its prediction."""

MODELS = {"classifier": CLASSIFY, "detector": DETECT, "oriented-detector": ORIENT, "segmenter": SEGMENT}
"""The models to explain, and the scenes that they were trained for."""
WITHOUT_COLOUR = ("oriented-detector", "segmenter")
"""Models whose labels are shapes."""
MIN_GAIN = (0.05, 0.05, 0.2)
"""How much better than random maps a method must be in deletion, insertion and the pointing game."""


def main() -> None:
    """Measure, print a table, and fail when a method is not clearly better than chance."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=int, default=6, help="for each model")
    count = parser.parse_args().scenes
    cv2.setNumThreads(1)
    table = Table(
        "model", "map", "deletion (low)", "insertion (high)", "pointing game", "maps",
        title=f"{count} scenes a model, seed {_SEED}, {DEFAULT_SAMPLES} samples, grid {ExplanationParameters().grid}",
    )  # fmt: skip
    failed = False
    sources_by_name = {source.name: source for source in find_models(ModelOptions())}
    for model, recipe in MODELS.items():
        servable = load(sources_by_name[model])
        scenes = [(scene, _subject(servable, scene)) for scene in make_scenes(_SEED, recipe, count)]
        ways = {
            f"random, {RANDOM_MAPS} seeds": _random_maps(),
            **{str(method): _maps_of(method) for method in ExplanationMethod},
        }
        means: list[NDArray[np.float64]] = []
        for name, maps in ways.items():
            figures = [
                _measure(subject, index, saliency, scene, model)
                for scene, subject in scenes
                for index, saliency in maps(subject)
            ]
            means.append(np.mean(figures, axis=0))
            table.add_row(model, name, *(f"{value:.3f}" for value in means[-1]), str(len(figures)))
        failed |= any(((mean - means[0]) * (-1, 1, 1) < MIN_GAIN).any() for mean in means[1:])
    Console(width=130).print(table)
    sys.exit(failed)


def _maps_of(method: ExplanationMethod) -> Maps:
    parameters = ExplanationParameters(method=method, seed=_SEED)

    def maps(subject: ExplanationTarget) -> Iterator[tuple[int, Map]]:
        samples = sample_count(subject, parameters, DEFAULT_SAMPLES)
        for index, heatmap in enumerate(explain_target(subject, parameters, samples, lambda: True)):
            yield index, heatmap.saliency

    return maps


def _random_maps() -> Maps:
    rng = np.random.default_rng(0)

    def maps(subject: ExplanationTarget) -> Iterator[tuple[int, Map]]:
        height, width = subject.item.image.pixels.shape[:2]
        for index in range(subject.prediction_count):
            for _ in range(RANDOM_MAPS):
                coarse = rng.random((8, 8)).astype(np.float32)
                saliency: Any = cv2.resize(coarse, (width, height), interpolation=cv2.INTER_LINEAR)
                yield index, saliency

    return maps


def _subject(servable: Servable, scene: Scene) -> ExplanationTarget:
    _, (subject,) = explanation_targets(servable, request(pixel_input(scene.image)), Limits(), None, 3)
    return subject


def _measure(
    subject: ExplanationTarget, index: int, saliency: Map, scene: Scene, model: str
) -> tuple[float, float, float]:
    """Return deletion, insertion, and whether the most salient pixel lies on the object."""
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
    return areas[0], areas[1], float(hit)


def _replaced(before: NDArray[np.uint8], after: NDArray[np.uint8], saliency: Map) -> Iterator[NDArray[np.uint8]]:
    """Yield copies with more and more of the pixels replaced, the most salient ones first."""
    rank = np.empty(saliency.size, np.int64)
    rank[np.argsort(-saliency, axis=None, kind="stable")] = np.arange(saliency.size)
    for step in range(_STEPS + 1):
        replaced = rank.reshape(saliency.shape) < round(saliency.size * step / _STEPS)
        yield np.where(replaced[..., np.newaxis], after, before)


if __name__ == "__main__":
    main()
