"""Convert the records of an image to the results of Label Studio, whose lengths are percent of the image's sides."""

import math
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from app.plugins.labeling.plan import Control, Plan
from tasks.image_classification import LabelledScore
from tasks.image_segmentation import SegmentedObject
from tasks.image_text_to_text import Answer
from tasks.inference.response import Record
from tasks.object_detection import DetectedObject
from tasks.oriented_object_detection import OrientedObject
from tasks.vision.contours import contours_inside, mask_of_contours

Region = dict[str, Any]
_Shape = DetectedObject | OrientedObject | SegmentedObject

PIXEL_CENTRE = 0.5
"""Records have the centres of pixels, labelling tools the corners."""

# The bit stream of Label Studio's brush.
_CHANNELS = 4
"""The mask is repeated as the red, green, blue and alpha of each pixel."""
_OPAQUE = 255
_WORD_BITS = 8
_LENGTH_BITS = np.array([3, 4, 8, 16])
_MAX_RUN = 1 << int(_LENGTH_BITS[-1])
_CODE_BITS = 32


def task_result(plan: Plan, records: Sequence[Record], width: int, height: int) -> Mapping[str, object]:
    """Return the prediction for one task with the records of its image of `width` x `height` pixels."""
    regions: list[Region] = []
    for control, names in plan.controls:
        kind, size = control.tag.lower(), {"original_width": width, "original_height": height, "image_rotation": 0}
        common: Region = {"from_name": control.attributes["name"], "to_name": control.image, "type": kind, **size}
        found = _regions(control, names, records, width, height)
        regions += [{"id": secrets.token_hex(5), **common, **region} for region in found]
    scores = [region["score"] for region in regions if "score" in region]
    return {"result": regions, "score": sum(scores) / len(scores) if scores else 0.0, "model_version": plan.version}


def _regions(
    control: Control, names: Mapping[str, str], records: Sequence[Record], width: int, height: int
) -> Iterator[Region]:
    """Yield each region without the fields that all regions of a tag share."""
    if control.tag == "TextArea":
        yield {"value": {"text": [record.answer for record in records if isinstance(record, Answer)]}}
    elif control.tag == "Choices":
        classes = [record for record in records if isinstance(record, LabelledScore) and record.label in names]
        if control.attributes.get("choice") != "multiple":
            classes = classes[:1]
        if classes:
            yield {"value": {"choices": [names[record.label] for record in classes]}, "score": classes[0].score}
    else:
        for record in records:
            if not isinstance(record, _Shape) or record.label not in names:
                continue
            labels = {control.tag.lower(): [names[record.label]]}
            for value in _values(control.tag, record, width, height):
                yield {"value": {**value, **labels}, "score": record.score}


def _values(tag: str, record: _Shape, width: int, height: int) -> Sequence[Mapping[str, object]]:
    """Return the shapes of an object: a rectangle, a mask, or a polygon for each of its parts."""
    if isinstance(record, DetectedObject):
        x, y = 100 * record.xmin / width, 100 * record.ymin / height
        right, bottom = 100 * record.xmax / width, 100 * record.ymax / height
        return [{"x": x, "y": y, "width": right - x, "height": bottom - y, "rotation": 0}]
    if tag == "RectangleLabels" and isinstance(record, OrientedObject):
        return [_rotated_rectangle(record, width, height)]
    if isinstance(record, OrientedObject):
        return [_polygon(record.rings(width, height)[0], width, height)]
    rings = record.rings(width, height)
    # None without a pixel in the image.
    rings = contours_inside(rings, width, height) if rings else []
    if not rings:
        return []
    if tag == "BrushLabels":
        return [{"format": "rle", "rle": _brush(rings, width, height)}]
    return [_polygon(ring, width, height) for ring in _polygons_of(rings)]


def _polygon(ring: NDArray[np.float64], width: int, height: int) -> Mapping[str, object]:
    return {"points": (100 * ring / (width, height)).tolist(), "closed": True}


def _polygons_of(rings: Sequence[NDArray[np.float64]]) -> Sequence[NDArray[np.float64]]:
    """Return the boundaries of the parts of a segment, as labelling tools draw them, without holes."""
    outer: list[NDArray[np.float64]] = []
    for ring in rings:
        # Holes follow the boundary around them.
        boundary = outer[-1].astype(np.float32) if outer else None
        if boundary is None or cv2.pointPolygonTest(boundary, ring[0].tolist(), False) < 0:
            outer.append(ring)
    return [ring + PIXEL_CENTRE for ring in outer if len(ring) > 2]


def _rotated_rectangle(record: OrientedObject, width: int, height: int) -> Mapping[str, object]:
    """Return the rectangle with the corner about which Label Studio turns it, clockwise with y down.

    Each of the corners describes the same rectangle. The one that lies in the image is the best: Label Studio rejects
    numbers above 100.
    """
    candidates: list[dict[str, float]] = []
    sides = record.w * width, record.h * height
    for turns in range(4):
        angle = record.r + turns * math.pi / 2
        along, across = sides if turns % 2 == 0 else sides[::-1]
        cosine, sine = math.cos(angle), math.sin(angle)
        x = record.cx * width - along / 2 * cosine + across / 2 * sine
        y = record.cy * height - along / 2 * sine - across / 2 * cosine
        lengths = {"x": x / width, "y": y / height, "width": along / width, "height": across / height}
        value = {name: 100 * length for name, length in lengths.items()}
        candidates.append({**value, "rotation": math.degrees(angle) % 360})
    names = ("x", "y", "width", "height")
    return min(candidates, key=lambda value: max(0, -value["x"], -value["y"], *(value[name] - 100 for name in names)))


def _brush(rings: Sequence[NDArray[np.float64]], width: int, height: int) -> list[int]:
    """Return the bytes of the mask of an object, which lies in an image of `width` x `height` pixels."""
    points = np.rint(np.concatenate(rings)).astype(int)
    top, bottom = int(points[:, 1].min()), int(points[:, 1].max()) + 1
    # Only the rows of the object are drawn.
    mask = mask_of_contours([ring - (0, top) for ring in rings], width, bottom - top).ravel()
    changes = np.flatnonzero(np.diff(np.pad(mask, 1))) + top * width
    lengths = np.diff(np.concatenate([[0], changes, [width * height]]))
    return _encode_runs(lengths * _CHANNELS, width * height * _CHANNELS)


def _encode_runs(lengths: NDArray[np.int64], count: int) -> list[int]:
    """Return the bytes of runs of 0 and `_OPAQUE` in turn, starting with 0; those of no length are left out.

    Each run has the bit 1, two bits for the number of bits of its length minus 1, that length, and its value.
    """
    pieces = -(-lengths // _MAX_RUN)
    values = np.repeat(np.arange(len(lengths)) % 2 * _OPAQUE, pieces)
    sizes = np.full(int(pieces.sum()), _MAX_RUN)
    last = np.cumsum(pieces)[lengths > 0] - 1
    sizes[last] = (lengths[lengths > 0] - 1) % _MAX_RUN + 1
    kinds = np.searchsorted(1 << _LENGTH_BITS, sizes)
    bits = _LENGTH_BITS[kinds]
    codes = (4 + kinds) << (bits + _WORD_BITS) | (sizes - 1) << _WORD_BITS | values
    widths = 3 + bits + _WORD_BITS
    aligned = (codes << (_CODE_BITS - widths)).astype(">u4")
    rows = np.unpackbits(aligned.view(np.uint8).reshape(-1, 4), axis=1)
    header = f"{count:032b}{_WORD_BITS - 1:05b}" + "".join(f"{size - 1:04b}" for size in _LENGTH_BITS.tolist())
    stream = np.concatenate([np.array(list(header), np.uint8), rows[np.arange(_CODE_BITS) < widths[:, np.newaxis]]])
    return np.packbits(stream).tolist()
