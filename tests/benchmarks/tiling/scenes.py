"""Large scenes with small and large objects: drawn for the fixture detector, and simulated for an ideal one."""

from collections.abc import Mapping, Sequence

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.tiling.tiles import Tile
from fixtures.scenes import DETECT, Recipe, compose
from tasks.vision.filtering import ious

Pixels = NDArray[np.uint8]
Floats = NDArray[np.float32]

_WIDTH, _HEIGHT = 2400, 1600
_EXTENTS = ((27, 44, 60), (44, 68, 20), (400, 700, 1))
"""Pixels and numbers of objects: small, larger than the overlap of tiles, and larger than a tile."""


class DrawnScene(msgspec.Struct, frozen=True, eq=False):
    """A scene, and the labels and `boxes` (N, 4), xyxy in pixels, of its N objects."""

    pixels: Pixels
    labels: Sequence[str]
    boxes: Floats


def draw_scene(seed: int) -> DrawnScene:
    """Draw a scene of 2400 x 1600 pixels on low-frequency noise, with what the fixture detector finds."""
    random = np.random.default_rng(seed)
    noise = random.uniform(50, 205, (7, 10, 3)).astype(np.float32)
    pixels = np.clip(cv2.resize(noise, (_WIDTH, _HEIGHT), interpolation=cv2.INTER_CUBIC), 0, 255).astype(np.uint8)
    # Objects of each size have a part of the scene, so that none covers another.
    parts = ((0, 0, 1500, _HEIGHT), (1500, 0, _WIDTH, 700), (1500, 700, _WIDTH, _HEIGHT))
    labels: list[str] = []
    boxes: list[Floats] = []
    for (left, top, right, bottom), (low, high, count) in zip(parts, _EXTENTS, strict=True):
        view = pixels[top:bottom, left:right]
        side = max(view.shape[:2])
        recipe = Recipe(DETECT.shapes, (count,), (low / side, high / side), 0.0)
        for item in compose(random, view, recipe).items:
            labels.append(item.label)
            boxes.append(np.array(item.box, np.float32) + np.float32([left, top, left, top]))
    return DrawnScene(pixels, labels, np.stack(boxes))


class SimulatedScene(msgspec.Struct, frozen=True):
    """The true boxes (N, 4) of a scene of 4000 x 3000 pixels, all of one class."""

    boxes: Floats
    width: int = 4000
    height: int = 3000

    def seen(self, tile: Tile, random: np.random.Generator, min_side: float) -> tuple[Floats, Floats]:
        """Return the boxes (K, 4) that a good detector finds in a tile, in pixels of the tile, and their (K,) scores.

        Of an object at least a quarter must be visible, and `min_side` pixels. Cut objects have lower scores.
        """
        low = np.maximum(self.boxes[:, :2], (tile.left, tile.top))
        high = np.minimum(self.boxes[:, 2:], (tile.right, tile.bottom))
        sides = high - low
        share = np.prod(np.maximum(sides, 0), axis=1) / np.prod(self.boxes[:, 2:] - self.boxes[:, :2], axis=1)
        visible = (sides >= min_side).all(axis=1) & (share >= 0.25)
        jitter = random.normal(0, 0.015, (len(self.boxes), 4)) * np.tile(sides, 2)
        found = np.concatenate([low, high], axis=1) + jitter - np.tile([tile.left, tile.top], 2)
        found = np.clip(found, 0, np.tile([tile.right - tile.left, tile.bottom - tile.top], 2))
        scores = np.clip(0.55 + 0.4 * share + random.normal(0, 0.03, len(share)), 0.05, 1)
        return found[visible].astype(np.float32), scores[visible].astype(np.float32)


def _scattered(random: np.random.Generator, count: int, low: float, high: float) -> Floats:
    kept = np.zeros((0, 4), np.float32)
    for _ in range(20 * count):
        side, aspect = np.exp(random.uniform(np.log(low), np.log(high))), random.uniform(0.6, 1.6)
        size = np.array([side * aspect**0.5, side / aspect**0.5])
        corner = random.uniform((0, 0), np.maximum((4000, 3000) - size, 1))
        box = np.array([[*corner, *(corner + size)]], np.float32)
        if len(kept) < count and not ious(box, kept).any():
            kept = np.concatenate([kept, box])
    return kept


def simulated_scenes(seed: int) -> Mapping[str, SimulatedScene]:
    """Return scenes with one difficulty each."""
    random = np.random.default_rng(seed)
    large = _scattered(random, 14, 300, 1400)
    crowd = _scattered(random, 120, 30, 90)
    neighbours = crowd + np.tile((crowd[:, 2:] - crowd[:, :2]) * (0.4, 0.0), 2).astype(np.float32)
    holders = _scattered(random, 25, 250, 500)
    sizes = holders[:, 2:] - holders[:, :2]
    inner = holders[:, :2] + sizes * random.uniform(0.1, 0.7, (len(holders), 2))
    nested = np.concatenate([inner, inner + sizes * 0.2], axis=1).astype(np.float32)
    return {
        "small, 16-100 px": SimulatedScene(_scattered(random, 300, 16, 100)),
        "mixed, 20-600 px": SimulatedScene(_scattered(random, 120, 20, 600)),
        "large, 300-1400 px": SimulatedScene(large),
        "crowd, neighbours of IoU 0.43": SimulatedScene(np.concatenate([crowd, neighbours])),
        "small on large": SimulatedScene(np.concatenate([holders, nested])),
    }
