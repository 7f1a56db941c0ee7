"""Measure how often drift is detected with and without a change, over many pairs of image sets.

Each pair is a baseline and a production set with different images of one deployment (`fixtures/drift_world.py`). The
row names the change in production. Usage: ``python -m tests.benchmarks.drift_power`` (five minutes).
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle

import cv2
import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from app.plugins.drift.comparison import ALPHA, compare
from app.plugins.drift.measurement import BUNDLED, DriftInput, measure_images
from app.plugins.drift.sample import Observation, Sample, build_sample
from app.plugins.drift.service import load_embedder
from fixtures.drift_world import CAMERAS, Pixels, blurred, camera_images, darkened, flipped, warm
from tasks.vision.image import Image

CAMERA = "east"
_BASELINE, _PRODUCTION = 500, 300
"""Images of each set."""
_SEED = 1


@dataclass(frozen=True, slots=True)
class Change:
    """What happened to production.

    `wanted` is the smallest share of pairs in which it must be found; None if the share is only reported. `baseline` is
    the number of images in the baseline.
    """

    name: str
    change: Callable[[Pixels], Pixels] | None
    share: float = 1.0
    camera: str | None = None
    wanted: float | None = 0.95
    cameras: Sequence[str] = CAMERAS
    baseline: int = _BASELINE


NOTHING = Change("nothing", None, wanted=None)
CHANGES = (
    Change("blurred, sigma 1", blurred),
    Change("15 % darker", darkened),
    Change("another white balance", warm),
    Change("10 % blurred", blurred, share=0.1),
    Change("10 % upside down", flipped, share=0.1, wanted=0.7),
    Change("one camera of four blurred", blurred, camera=CAMERA),
    Change("one camera of four 15 % darker", darkened, camera=CAMERA),
    Change("10 % of images 15 % darker", darkened, share=0.1, wanted=None),
    Change("a third from a new camera, another gone", None, cameras=("north", "lobby", "south")),
    Change("20 % upside down, baseline of 100", flipped, share=0.2, wanted=None, baseline=100),
)


class World:
    """A number of images of one deployment, measured once for each change."""

    def __init__(self, count: int) -> None:
        self._camera_images = camera_images(_SEED, count)
        self._embedder = load_embedder(BUNDLED)
        self._measured: dict[object, list[Observation]] = {}

    def pair(self, change: Change, rng: np.random.Generator) -> tuple[Sample, Sample]:
        """Return a baseline and a production set without common images."""
        rows: list[int] = rng.permutation(len(self._camera_images))[: change.baseline + _PRODUCTION].tolist()
        clean, changed = self.observations(None), self.observations(change.change)
        production = [
            changed[row] if index < change.share * _PRODUCTION and self._is_affected(row, change) else clean[row]
            for index, row in enumerate(rows[change.baseline :])
        ]
        if change.cameras is not CAMERAS:
            # Only the metadata changes: this is the hardest case.
            entries = ({"camera": camera} for camera in cycle(change.cameras))
            production = [msgspec.structs.replace(item, metadata=next(entries)) for item in production]
        return build_sample([clean[row] for row in rows[: change.baseline]]), build_sample(production)

    def _is_affected(self, row: int, change: Change) -> bool:
        return change.camera in (None, self._camera_images[row].camera)

    def observations(self, change: Callable[[Pixels], Pixels] | None) -> Sequence[Observation]:
        """Return all measured images, changed or as they are."""
        if change not in self._measured:
            samples: list[DriftInput] = []
            for index, seen in enumerate(self._camera_images):
                image = Image(seen.pixels if change is None else change(seen.pixels))
                samples.append(DriftInput(id=str(index), image=image, metadata={"camera": seen.camera}))
            self._measured[change] = list(measure_images(samples, "", self._embedder))
        return self._measured[change]


def main() -> None:
    """Measure, print a table, and fail when there are too many alarms, or a change is not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10, help="for each change; without a change 20 times as many")
    parser.add_argument("--images", type=int, default=1600, help="images to draw pairs from")
    options = parser.parse_args()
    cv2.setNumThreads(1)
    world = World(options.images)
    started = time.process_time()
    world.observations(None)
    image_milliseconds = 1000 * (time.process_time() - started) / options.images
    print(f"measuring an image takes {image_milliseconds:.1f} ms of a core")
    rng = np.random.default_rng(_SEED)
    title = f"{_BASELINE} images against {_PRODUCTION}, level {ALPHA:g}, seed {_SEED}"
    table = Table("change in production", "pairs", "found", "by", "CPU s a pair", title=title)
    failed = False
    for change in (NOTHING, *CHANGES):
        pairs = options.pairs * (20 if change is NOTHING else 1)
        started, found, by = time.process_time(), 0, Counter[str]()
        for _ in range(pairs):
            result = compare(*world.pair(change, rng))
            found += result.drifted
            by.update(test.name for test in result.tests if test.drifted)
        shares = ", ".join(f"{name} {count / pairs:.2f}" for name, count in by.most_common())
        seconds = (time.process_time() - started) / pairs
        table.add_row(change.name, str(pairs), f"{found / pairs:.2f}", shares, f"{seconds:.2f}")
        failed |= found / pairs > ALPHA if change is NOTHING else found / pairs < (change.wanted or 0)
    Console(width=150).print(table)
    sys.exit(failed)


if __name__ == "__main__":
    main()
