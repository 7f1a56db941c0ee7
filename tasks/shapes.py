"""Read the objects of any task type with a geometry."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.image_segmentation import SegmentedObject
from tasks.object_detection import DetectedObject
from tasks.oriented_object_detection import OrientedObject
from tasks.task import Geometry
from tasks.vision.contours import MAX_PIXELS, contours_inside

Shape = DetectedObject | OrientedObject | SegmentedObject

_RECORDS: Mapping[Geometry, type[Shape]] = {
    "box": DetectedObject,
    "oriented": OrientedObject,
    "contour": SegmentedObject,
}


def read_shape(geometry: Geometry, record: object) -> Shape:
    """Convert a record, as a Struct or as parsed JSON. Raise ValidationError if it lacks fields of `geometry`."""
    return msgspec.convert(record, _RECORDS[geometry], from_attributes=True)


def read_outlines(
    geometry: Geometry, records: Sequence[object], width: int, height: int, changes: Counter[str]
) -> Iterator[tuple[Shape, Sequence[NDArray[np.float64]]]]:
    """Yield the objects in an image of this size with their outlines in pixels. Count the others in `changes`."""
    for record in records:
        try:
            shape = read_shape(geometry, record)
        except msgspec.ValidationError:
            changes["left out: a label, score or place that cannot be read, such as a redacted one"] += 1
            continue
        outlines = shape.rings(width, height)
        if outlines and geometry == "contour":
            if width * height > MAX_PIXELS:
                changes[f"left out: an outline in an image of more than {MAX_PIXELS:,} pixels"] += 1
                continue
            outlines = contours_inside(outlines, width, height)
        if outlines:
            yield shape, outlines
        else:
            changes["left out: no outline inside the image"] += 1
