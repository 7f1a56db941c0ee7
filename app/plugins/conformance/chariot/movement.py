"""Check that coordinates move with the image: pixels added on its left and on its top move them by just that."""

from collections.abc import Sequence

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
_SIZE_TOLERANCE = 0.05
_MAX_ITEMS = 5


def expect_movement(probe: Probe, task_type: str) -> None:
    """Compare the items of images with the items of the same images with added pixels.

    Several items that are found again in their size, but not where they belong, are a violation, unless as many are.
    """
    items_of_type(probe, task_type)
    right, wrong = 0, list[str]()
    for result in results_of(probe):
        left, top = round(_LEFT * result.image.width), round(_TOP * result.image.height)
        moved = probe_image(probe, result.image.moved(left, top))
        for item in result.items[:_MAX_ITEMS]:
            position, size = _place(item, result.image)
            expected = [value + (top if index % 2 else left) for index, value in enumerate(position)]
            places = [_place(other, moved.image) for other in moved.items if other.get("label") == item.get("label")]
            same_size = _SIZE_TOLERANCE * max(size, default=0)
            elsewhere = [found for found, found_size in places if _is_near(found_size, size, same_size)]
            if any(_is_near(found, expected, _TOLERANCE * top) for found, _ in places):
                right += 1
            elif elsewhere:
                change = f"{_rounded(position)} became {_rounded(elsewhere[0])}, not {_rounded(expected)}"
                wrong.append(f"{result.image.name}, {left} pixels added on the left and {top} on the top: {change}")
    if len(wrong) > max(1, right):
        raise ViolationError(wrong[0])
    if not right:
        raise InconclusiveError("The model finds other items in the same image with pixels added on the left and top")


def _place(item: Item, image: SampleImage) -> tuple[Sequence[float], Sequence[float]]:
    """Return the coordinates and the size of an item in pixels; both are empty if it has none.

    The coordinates are left, top, right and bottom, or x and y of the centre of an oriented box.
    """
    names = ("cx", "cy", "w", "h")
    if all(is_number(item.get(name)) for name in names):
        cx, cy, w, h = (item[name] * side for name, side in zip(names, (image.width, image.height) * 2, strict=True))
        return [cx, cy], [w, h]
    extent = extent_of(item)
    return (extent, [extent[2] - extent[0], extent[3] - extent[1]]) if len(extent) == 4 else ([], [])


def _is_near(values: Sequence[float], expected: Sequence[float], tolerance: float) -> bool:
    return len(values) == len(expected) > 0 and all(
        abs(value - other) <= tolerance for value, other in zip(values, expected, strict=True)
    )


def _rounded(values: Sequence[float]) -> list[int]:
    return [round(value) for value in values]
