"""The colours of labels, for images of commands and for the page.

A label that names a colour has it, or one nearby; the others of a model are as far apart as possible.
"""

import colorsys
import re
import zlib
from collections.abc import Mapping, Sequence
from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

Colour = tuple[int, int, int]

NAMED: Mapping[str, Colour] = {
    "red": (221, 30, 38),
    "orange": (244, 126, 24),
    "yellow": (242, 214, 36),
    "green": (32, 150, 62),
    "cyan": (22, 180, 196),
    "teal": (18, 140, 140),
    "blue": (34, 86, 228),
    "purple": (136, 50, 196),
    "violet": (136, 50, 196),
    "pink": (238, 96, 178),
    "magenta": (214, 30, 170),
    "brown": (136, 82, 36),
    "black": (26, 26, 26),
    "white": (245, 245, 245),
    "grey": (128, 128, 128),
    "gray": (128, 128, 128),
}
_NAME = re.compile(rf"\b({'|'.join(NAMED)})\b", re.IGNORECASE | re.ASCII)
_MIN_DISTANCE = 25
_NEARBY = 24


def _from_hls(hue: int, lightness: float, saturation: float) -> Colour:
    red, green, blue = colorsys.hls_to_rgb(hue / 360, lightness, saturation)
    return round(255 * red), round(255 * green), round(255 * blue)


VIVID: Sequence[Colour] = [
    _from_hls(hue, lightness, saturation)
    for lightness in (0.5, 0.38, 0.62, 0.74)
    for saturation in (0.72, 0.5)
    for hue in range(210, 570, 15)
]
"""Colours for any label, the strongest first. None is pure, because masks of pure colours hide the image."""

_GREYS: Sequence[Colour] = [(level, level, level) for level in (26, 60, 94, 128, 162, 204, 245)]
_ALL = np.array([*VIVID, *_GREYS])


def colour_of(label: str, labels: Sequence[str] = ()) -> Colour:
    """Return the colour of a label among the `labels` of its model; of another label, one that its text chooses."""
    return colours_of(tuple(labels)).get(label) or VIVID[zlib.crc32(label.encode()) % len(VIVID)]


@lru_cache(maxsize=64)
def colours_of(labels: tuple[str, ...]) -> Mapping[str, Colour]:
    """Return a colour for each label of one model, in any order. Colours repeat if there are more labels."""
    room = np.full(len(_ALL), np.inf)
    found: dict[str, Colour] = {}
    # Named colours first: they have no choice.
    for index, label in enumerate(sorted(set(labels), key=lambda label: (_NAME.search(label) is None, label))):
        name = _NAME.search(label)
        place = int(room[: len(VIVID)].argmax()) if name is None else _nearest(room, name[1].lower())
        if name is None and room[place] == 0:
            place = index % len(VIVID)
        red, green, blue = _ALL[place].tolist()
        found[label] = red, green, blue
        room = np.minimum(room, _distances(found[label]))
    return found


def _nearest(room: NDArray[np.float64], name: str) -> int:
    """Return a colour near a named one that differs from the colours of other labels."""
    near = _distances(NAMED[name]).argsort(kind="stable")[:_NEARBY]
    free = near[room[near] >= _MIN_DISTANCE]
    return int(free[0] if free.size else near[room[near].argmax()])


@cache
def _distances(colour: Colour) -> NDArray[np.float64]:
    return np.linalg.norm(_ALL - colour, axis=1)
