"""Export detections, oriented boxes and segmentations as COCO, for annotation tools and pycocotools.

An annotation includes its `score`, so that the list is also valid as COCO results.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.recording.export.writing import Batches, Exported
from app.recording.inference import RecordedImage, RecordedInference
from app.recording.moments import iso_moment
from tasks.image_segmentation import SegmentedObject
from tasks.object_detection import DetectedObject
from tasks.oriented_object_detection import OrientedObject
from tasks.task import TaskType
from tasks.vision.contours import mask_of_contours

__all__ = ("write_coco",)

_HALF_PIXEL = 0.5
"""Offset: COCO measures from the edge of the first pixel, contours from its centre."""
_Kind = type[DetectedObject] | type[OrientedObject] | type[SegmentedObject]
_TASKS: dict[str, _Kind] = {
    TaskType.OBJECT_DETECTION.value: DetectedObject,
    TaskType.ORIENTED_OBJECT_DETECTION.value: OrientedObject,
    TaskType.IMAGE_SEGMENTATION.value: SegmentedObject,
}
_Corners = NDArray[np.float64]


def write_coco(batches: Batches, file: BinaryIO) -> Exported:
    """Write `images`, `annotations` and `categories`, with one image for each inference, even without predictions.

    Boxes are xywh in pixels. `segmentation` has polygons in pixels, the corners of a box, or run-length codes for
    objects with holes. Inferences of other tasks, rejected requests, and images of unknown size are left out.
    """
    encoder = msgspec.json.Encoder()
    categories: dict[str, int] = {}
    written = annotated = left_out = 0
    with tempfile.TemporaryFile(dir=Path(file.name).parent) as annotations:
        file.write(b'{"info":{"description":"Inferences recorded by Charioteer"},"images":[')
        for batch in batches:
            for inference in batch:
                image = inference.image
                kind = _TASKS.get(inference.task_type)
                if kind is None or inference.records is None or image is None or not image.width * image.height:
                    left_out += 1
                    continue
                written += 1
                file.write(b",\n" if written > 1 else b"\n")
                file.write(encoder.encode(_image(written, inference, image)))
                for annotation in _annotations(inference.records, kind, image):
                    annotated += 1
                    category = categories.setdefault(annotation.pop("label"), len(categories) + 1)
                    annotations.write(b",\n" if annotated > 1 else b"\n")
                    place = {"id": annotated, "image_id": written, "category_id": category}
                    annotations.write(encoder.encode(place | annotation))
        file.write(b'],"annotations":[')
        annotations.seek(0)
        shutil.copyfileobj(annotations, file)
        named = [{"id": number, "name": label, "supercategory": ""} for label, number in categories.items()]
        file.write(b'],"categories":' + encoder.encode(named) + b"}\n")
    return Exported(written=written, left_out=left_out)


def _image(number: int, inference: RecordedInference, image: RecordedImage) -> dict[str, Any]:
    named = next((entry.value for entry in inference.metadata if entry.key == "file_name"), None)
    return {
        "id": number,
        "width": image.width,
        "height": image.height,
        "file_name": named if isinstance(named, str) else f"{image.digest[:2]}/{image.digest}",
        "date_captured": iso_moment(inference.started),
        "inference": inference.id,
        "model": inference.model,
        "metadata": {entry.key: entry.value for entry in inference.metadata},
    }


def _annotations(
    records: Sequence[Mapping[str, object]], kind: _Kind, image: RecordedImage
) -> Iterator[dict[str, Any]]:
    for record in records:
        try:
            found = msgspec.convert(record, kind)
        except msgspec.ValidationError:
            continue
        match found:
            case DetectedObject():
                polygon = np.array(
                    [
                        [found.xmin, found.ymin],
                        [found.xmax, found.ymin],
                        [found.xmax, found.ymax],
                        [found.xmin, found.ymax],
                    ]
                )
                yield _annotation(found.label, found.score, polygon)
            case OrientedObject():
                yield _annotation(found.label, found.score, _corners(found, image.width, image.height))
            case _:
                outlines = [np.array([[point.x, point.y] for point in ring]) for ring in found.contour if ring]
                if outlines:
                    yield _outlined(found.label, found.score, outlines, image)


def _annotation(label: str, score: float, corners: _Corners) -> dict[str, Any]:
    """Return the annotation of a box from its corners in order."""
    low, high = corners.min(axis=0), corners.max(axis=0)
    return {
        "label": label,
        "score": score,
        "bbox": [*low.tolist(), *(high - low).tolist()],
        "area": _area(corners),
        "segmentation": [corners.ravel().tolist()],
        "iscrowd": 0,
    }


def _outlined(label: str, score: float, outlines: Sequence[_Corners], image: RecordedImage) -> dict[str, Any]:
    """Return the annotation of an object from its outlines through the centres of pixels.

    Area and box are those of its pixels. COCO polygons cannot have holes, and cannot be lines or points.
    """
    low = np.floor(np.concatenate(outlines).min(axis=0))
    width, height = (np.ceil(np.concatenate(outlines).max(axis=0)) - low + 1).astype(int).tolist()
    local = [(outline - low).astype(np.float32) for outline in outlines]
    mask = mask_of_contours(local, width, height)
    rows, columns = np.nonzero(mask)
    segmentation: object = [(outline + _HALF_PIXEL).ravel().tolist() for outline in outlines]
    if min(map(len, outlines)) < 3 or (len(outlines) > 1 and _have_holes(local, mask)):
        places = np.sort((columns + int(low[0])) * image.height + rows + int(low[1]))
        segmentation = {"size": [image.height, image.width], "counts": _runs(places, image.width * image.height)}
    return {
        "label": label,
        "score": score,
        "bbox": [*low.tolist(), width, height],
        "area": len(rows),
        "segmentation": segmentation,
        "iscrowd": 0,
    }


def _have_holes(outlines: Sequence[NDArray[np.float32]], mask: NDArray[np.uint8]) -> bool:
    """Return whether the even-odd rule removes pixels from the union of the outlines."""
    together = np.zeros_like(mask)
    for outline in outlines:
        together |= mask_of_contours([outline], mask.shape[1], mask.shape[0])
    return not np.array_equal(together, mask)


def _runs(places: NDArray[np.int64], size: int) -> list[int]:
    """Encode COCO's uncompressed run lengths: alternating runs of 0 and 1, 0 first.

    Args:
        places: sorted indexes of the ones, in column-major order.
        size: number of pixels of the image.
    """
    breaks = np.flatnonzero(np.diff(places) != 1) + 1
    starts = places[np.concatenate([[0], breaks])]
    ends = places[np.concatenate([breaks - 1, [len(places) - 1]])] + 1
    edges = np.column_stack([starts, ends]).ravel()
    return [*np.diff(np.concatenate([[0], edges])).tolist(), size - int(edges[-1])]


def _corners(found: OrientedObject, width: int, height: int) -> _Corners:
    """Return the corners: scaled to pixels, then rotated clockwise, with y down."""
    centre = np.array([found.cx * width, found.cy * height])
    along = np.array([np.cos(found.r), np.sin(found.r)]) * found.w * width / 2
    across = np.array([-np.sin(found.r), np.cos(found.r)]) * found.h * height / 2
    return centre + np.array([-along - across, along - across, along + across, across - along])


def _area(corners: _Corners) -> float:
    x, y = corners.T
    return float(abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2)
