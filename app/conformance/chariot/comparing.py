"""Compare two responses, with a tolerance for lossy image encodings."""

from collections.abc import Iterator, Sequence
from typing import Any, cast

from app.conformance.chariot.looking import Item, is_number

__all__ = ("alike", "coordinates")


def alike(first: Sequence[Item], second: Sequence[Item], tolerance: float) -> bool:
    """Return whether the best items have the same label, answer, score and coordinates.

    Args:
        first: the items of one answer.
        second: the items of the other answer.
        tolerance: the largest difference of coordinates, relative to the largest coordinate, and of scores.
    """
    if not first or not second:
        return not first and not second
    one, other = _best(first), _best(second)
    if one.get("label") != other.get("label") or one.get("answer") != other.get("answer"):
        return False
    one_score, other_score = one.get("score"), other.get("score")
    if is_number(one_score) and is_number(other_score) and abs(one_score - other_score) > tolerance:
        return False
    left, right = _extent(one), _extent(other)
    if len(left) != len(right):
        return False
    scale = max((abs(value) for value in left), default=0)
    return all(abs(a - b) <= tolerance * scale for a, b in zip(left, right, strict=True))


def coordinates(contour: object) -> Iterator[tuple[float, float]]:
    """Yield the points (x, y) of a contour, from lists of any depth."""
    if isinstance(contour, list):
        for part in cast("list[object]", contour):
            yield from coordinates(part)
    elif isinstance(contour, dict):
        point = cast("dict[str, Any]", contour)
        x, y = point.get("x"), point.get("y")
        if is_number(x) and is_number(y):
            yield float(x), float(y)


def _best(items: Sequence[Item]) -> Item:
    return max(items, key=_score)


def _score(item: Item) -> float:
    score = item.get("score")
    return score if is_number(score) else -1


def _extent(item: Item) -> list[float]:
    """Return the coordinates of an item; for a contour, those of its bounding box."""
    if points := list(coordinates(item.get("contour"))):
        xs, ys = zip(*points, strict=True)
        return [min(xs), min(ys), max(xs), max(ys)]
    names = ("xmin", "ymin", "xmax", "ymax", "cx", "cy", "w", "h")
    return [float(item[name]) for name in names if is_number(item.get(name))]
