"""Read the objects of any task type with a geometry."""

from collections.abc import Mapping

import msgspec

from tasks.image_segmentation import SegmentedObject
from tasks.object_detection import DetectedObject
from tasks.oriented_object_detection import OrientedObject
from tasks.task import Geometry

__all__ = ("Shape", "read_shape")

Shape = DetectedObject | OrientedObject | SegmentedObject

_RECORDS: Mapping[Geometry, type[Shape]] = {
    "box": DetectedObject,
    "oriented": OrientedObject,
    "contour": SegmentedObject,
}


def read_shape(geometry: Geometry, record: object) -> Shape:
    """Convert a record, as a Struct or as parsed JSON; its other fields are ignored.

    Raises:
        msgspec.ValidationError: when it has not the fields of `geometry`.
    """
    return msgspec.convert(record, _RECORDS[geometry], from_attributes=True)
