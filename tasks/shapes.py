"""Read the objects of any task type with a geometry."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import msgspec

from tasks.image_segmentation import SegmentedObject
from tasks.object_detection import DetectedObject
from tasks.oriented_object_detection import OrientedObject
from tasks.task import Geometry, TaskType

Shape = DetectedObject | OrientedObject | SegmentedObject

GEOMETRIES: Mapping[str, Geometry] = {
    task_type.value: task_type.geometry for task_type in TaskType if task_type.geometry is not None
}
"""The geometry of each task type with objects."""

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


def read_shapes(geometry: Geometry, records: Sequence[object]) -> Iterator[Shape]:
    """Yield `read_shape` of the records that have the fields of `geometry`."""
    for record in records:
        with suppress(msgspec.ValidationError):
            yield read_shape(geometry, record)
