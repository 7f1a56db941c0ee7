"""Compare two responses, with a tolerance for lossy image encodings."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from app.conformance.chariot.image_probe import Item, is_number


def is_similar(first: Sequence[Item], second: Sequence[Item], tolerance: float) -> bool:
    """Return whether the best items have the same label, answer, score and coordinates.

    Args:
        first: the items of one answer.
        second: the items of the other answer.
        tolerance: the largest difference of coordinates, relative to the largest coordinate, and of scores.
    """
    if not first or not second:
        return not first and not second
    first_item, second_item = _best_item(first), _best_item(second)
    if first_item.get("label") != second_item.get("label") or first_item.get("answer") != second_item.get("answer"):
        return False
    first_score, second_score = first_item.get("score"), second_item.get("score")
    if is_number(first_score) and is_number(second_score) and abs(first_score - second_score) > tolerance:
        return False
    first_extent, second_extent = _extent(first_item), _extent(second_item)
    if len(first_extent) != len(second_extent):
        return False
    scale = max((abs(value) for value in first_extent), default=0)
    return all(abs(a - b) <= tolerance * scale for a, b in zip(first_extent, second_extent, strict=True))


def contour_points(contour: object) -> Iterator[tuple[float, float]]:
    """Yield the points (x, y) of a contour, from lists of any depth."""
    if isinstance(contour, list):
        for part in cast("list[object]", contour):
            yield from contour_points(part)
    elif isinstance(contour, dict):
        point = cast("dict[str, Any]", contour)
        x, y = point.get("x"), point.get("y")
        if is_number(x) and is_number(y):
            yield float(x), float(y)


def _best_item(items: Sequence[Item]) -> Item:
    return max(items, key=_score)


def _score(item: Item) -> float:
    score = item.get("score")
    return score if is_number(score) else -1


def _extent(item: Item) -> list[float]:
    """Return the coordinates of an item; for a contour, those of its bounding box."""
    if points := list(contour_points(item.get("contour"))):
        xs, ys = zip(*points, strict=True)
        return [min(xs), min(ys), max(xs), max(ys)]
    names = ("xmin", "ymin", "xmax", "ymax", "cx", "cy", "w", "h")
    return [float(item[name]) for name in names if is_number(item.get(name))]
