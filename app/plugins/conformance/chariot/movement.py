"""Check that coordinates move with the image: pixels added on its left and on its top move them by just that."""

from collections import Counter
from collections.abc import Mapping, Sequence

from app.plugins.conformance.chariot.image_probe import (
    Item,
    extent_of,
    is_number,
    items_of_type,
    probe_image,
    results_of,
)
from app.plugins.conformance.exchange import InconclusiveError, ViolationError
from app.plugins.conformance.probe import Probe
from app.plugins.conformance.sample_images import SampleImage

_LEFT, _TOP = 0.25, 0.12
"""The added pixels, as fractions of width and height. They differ, so that x and y are not confused."""
_TOLERANCE = 0.3
"""The tolerance as a fraction of the pixels that are added on the top: models find an object slightly elsewhere."""
_MAX_ITEMS = 5
_UNKNOWN = "They do not move by the added pixels"
_ENDS = ("right", "bottom")


def expect_movement(probe: Probe, task_type: str) -> None:
    """Compare the items of images with the items of the same images with added pixels.

    Coordinates that move as those from another side or of the other axis do are a violation. So are coordinates that
    move by something else in several images, if none is right.
    """
    items_of_type(probe, task_type)
    examples: dict[str, str] = {}
    counts = Counter[str]()
    for result in results_of(probe):
        added = (round(_LEFT * result.image.width), round(_TOP * result.image.height))
        moved = probe_image(probe, result.image.moved(*added))
        compared = [_compare(item, moved.items, result.image, added) for item in result.items[:_MAX_ITEMS]]
        for mistake, example in dict(filter(None, compared)).items():
            counts[mistake] += 1
            examples.setdefault(mistake, f"{result.image.name}, {added[0]} pixels added on the left and {added[1]} on"
                                         f" the top: {example}")  # fmt: skip
    right = counts.pop("", 0)
    for mistake, count in counts.most_common(1):
        if count > right if mistake != _UNKNOWN else count > 1 and not right:
            raise ViolationError(f"{examples[mistake]}. {mistake}")
    if not right:
        raise InconclusiveError("The model finds other items in the same image with pixels added on the left and top")


def _compare(
    item: Item, moved_items: Sequence[Item], image: SampleImage, added: Sequence[int]
) -> tuple[str, str] | None:
    """Return the mistake in the movement of an item, empty without one, with an example; None if it is not found."""
    position, size = _position(item, image.width, image.height), _size(item, image.width, image.height)
    width, height = image.width + added[0], image.height + added[1]
    mistakes: dict[str, str] = {}
    candidates = [other for other in moved_items if other.get("label") == item.get("label")]
    tolerance = _TOLERANCE * added[1]
    for other in candidates:
        got = _position(other, width, height)
        if not position or len(got) != len(position):
            continue
        readings = [
            _nearest(value, _readings(start, index % 2, image, added, in_fractions=len(position) == 2), tolerance)
            for index, (start, value) in enumerate(zip(position, got, strict=True))
        ]
        example = f"{_rounded(position)} became {_rounded(got)}"
        if all(reading is not None for reading in readings):
            mistakes[next(filter(None, readings), "")] = example
        elif len(candidates) == 1 and _is_near(size, _size(other, width, height)):
            mistakes[_UNKNOWN] = example
    # The item is the candidate that moved rightly, if there is one.
    return min(mistakes.items(), default=None)


def _readings(
    start: float, axis: int, image: SampleImage, added: Sequence[int], *, in_fractions: bool
) -> Mapping[str, float]:
    """Return the expected coordinate after the movement of `start`, both in pixels, by the mistake of an engine."""
    sizes = (image.width, image.height) if in_fractions else (1, 1)
    grown = (image.width + added[0], image.height + added[1]) if in_fractions else (1, 1)
    on_other_axis = start / sizes[axis] * sizes[1 - axis]
    exchanged = [(on_other_axis + shift) / grown[1 - axis] * grown[axis] for shift in (added[1 - axis], 0)]
    return {
        "": start + added[axis],
        f"{'xy'[axis]} moves as if it were counted from the {_ENDS[axis]}": start,
        "x and y move as if they were exchanged": exchanged[0],
        "x and y move as if they were exchanged, and counted from the other side": exchanged[1],
    }


def _nearest(value: float, readings: Mapping[str, float], tolerance: float) -> str | None:
    """Return the mistake that explains a coordinate, the empty one first; None if none does within the tolerance."""
    distances = {mistake: abs(value - expected) for mistake, expected in readings.items()}
    nearest = min(distances, key=lambda mistake: distances[mistake])
    return nearest if distances[nearest] <= tolerance else None


def _position(item: Item, width: int, height: int) -> Sequence[float]:
    """Return the coordinates in pixels: left, top, right and bottom, or x and y of an oriented box's centre."""
    if is_number(item.get("cx")) and is_number(item.get("cy")):
        return [item["cx"] * width, item["cy"] * height]
    extent = extent_of(item)
    return extent if len(extent) == 4 else []


def _size(item: Item, width: int, height: int) -> Sequence[float]:
    """Return the width and height of an item in pixels; empty if it has none."""
    if is_number(item.get("w")) and is_number(item.get("h")):
        return [item["w"] * width, item["h"] * height]
    extent = extent_of(item)
    return [extent[2] - extent[0], extent[3] - extent[1]] if len(extent) == 4 else []


def _is_near(first: Sequence[float], second: Sequence[float]) -> bool:
    return len(first) == len(second) and all(abs(a - b) <= 0.05 * abs(a) for a, b in zip(first, second, strict=True))


def _rounded(values: Sequence[float]) -> list[int]:
    return [round(value) for value in values]
