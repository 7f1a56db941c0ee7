"""Convert boxes, oriented boxes and outlines to geometries in pixels."""

from collections.abc import Sequence
from functools import reduce
from typing import Any

from app.evaluation.answers import PredictedObject
from app.evaluation.dataset import LabelledObject, Ring
from app.evaluation.extras import import_optional
from tasks.task import TaskType

__all__ = ("even_odd", "predicted_area", "share_inside", "truth_area", "union")

_POINTS_OF_AN_AREA = 3


def truth_area(truth: LabelledObject, task: TaskType) -> Any:
    """Return the area of an object as a shapely geometry, for the metrics of `task`."""
    if task is TaskType.IMAGE_SEGMENTATION and truth.rings is not None:
        return even_odd(truth.rings) if truth.even_odd else union(truth.rings)
    return _box_area(truth.box, truth.corners)


def predicted_area(prediction: PredictedObject) -> Any:
    """Return the area of a prediction as a shapely geometry; it is empty for an outline without area."""
    return even_odd(prediction.rings) if prediction.rings is not None else _box_area(prediction.box, prediction.corners)


def even_odd(rings: Sequence[Ring]) -> Any:
    """Return the area inside rings by the even-odd rule: a ring inside another is a hole."""
    return reduce(lambda a, b: a.symmetric_difference(b), map(_ring, rings), import_optional("shapely").Polygon())


def union(rings: Sequence[Ring]) -> Any:
    """Return the union of the rings: each is a separate part, as COCO polygons are."""
    return import_optional("shapely").union_all([_ring(ring) for ring in rings])


def share_inside(inner: Any, outer: Any) -> float:
    """Return the share of `inner` that lies in `outer`, 0..1."""
    return inner.intersection(outer).area / inner.area if inner.area > 0 else 0.0


def _box_area(box: tuple[float, float, float, float] | None, corners: Ring | None) -> Any:
    shapely = import_optional("shapely")
    if corners is not None:
        return _ring(corners)
    return shapely.box(*box) if box is not None else shapely.Polygon()


def _ring(ring: Ring) -> Any:
    """Return the polygon of a closed outline. The even-odd rule applies if it crosses itself."""
    shapely = import_optional("shapely")
    if len(ring) < _POINTS_OF_AN_AREA:
        return shapely.Polygon()
    polygon = shapely.Polygon(ring)
    if polygon.is_valid:
        return polygon
    areas = [area for area in shapely.get_parts(shapely.make_valid(polygon)) if area.area > 0]
    return shapely.union_all(areas) if areas else shapely.Polygon()
