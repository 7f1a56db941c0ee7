"""Boxes, turned boxes and outlines as areas of the plane, in pixels."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

from app.evaluation.answers import Found
from app.evaluation.dataset import LabelledObject, Ring
from app.evaluation.extras import needed
from tasks.task import TaskType

__all__ = ("area", "even_odd", "found_area", "share_inside", "union")

_POINTS_OF_AN_AREA = 3


def area(truth: LabelledObject, task: TaskType) -> Any:
    """A shapely geometry: what an object covers, for the measure of `task`."""
    if task is TaskType.IMAGE_SEGMENTATION and truth.rings is not None:
        return even_odd(truth.rings) if truth.even_odd else union(truth.rings)
    return _plain(truth.box, truth.corners)


def found_area(found: Found) -> Any:
    """A shapely geometry: what a finding covers; an empty one for an outline without area."""
    return even_odd(found.rings) if found.rings is not None else _plain(found.box, found.corners)


def even_odd(rings: Sequence[Ring]) -> Any:
    """The area that rings enclose an odd number of times: a ring inside another is a hole."""
    return reduce(lambda a, b: a.symmetric_difference(b), map(_ring, rings), needed("shapely").Polygon())


def union(rings: Sequence[Ring]) -> Any:
    """The area that any of the rings encloses: each is a part of its own, as COCO has polygons."""
    return needed("shapely").union_all([_ring(each) for each in rings])


def share_inside(inner: Any, outer: Any) -> float:
    """The part of `inner` that lies in `outer`, 0..1."""
    return inner.intersection(outer).area / inner.area if inner.area > 0 else 0.0


def _plain(box: tuple[float, float, float, float] | None, corners: Ring | None) -> Any:
    shapely = needed("shapely")
    if corners is not None:
        return _ring(corners)
    return shapely.box(*box) if box is not None else shapely.Polygon()


def _ring(ring: Ring) -> Any:
    """A closed outline. One that crosses itself encloses what it goes round an odd number of times."""
    shapely = needed("shapely")
    if len(ring) < _POINTS_OF_AN_AREA:
        return shapely.Polygon()
    polygon = shapely.Polygon(ring)
    if polygon.is_valid:
        return polygon
    parts = [each for each in shapely.get_parts(shapely.make_valid(polygon)) if each.area > 0]
    return shapely.union_all(parts) if parts else shapely.Polygon()
