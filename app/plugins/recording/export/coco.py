"""Export detections, oriented boxes and segmentations as COCO, for annotation tools and pycocotools.

An annotation includes its `score`, so that the list is also valid as COCO results.
"""

import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.recording.inference import Batches, Exported, RecordedImage, RecordedInference, format_timestamp
from tasks.shapes import read_outlines
from tasks.task import GEOMETRIES
from tasks.vision.contours import mask_of_contours

_HALF_PIXEL = 0.5
"""Offset: COCO measures from the edge of the first pixel, contours from its centre."""
_Points = NDArray[np.float64]


def write_coco(batches: Batches, file: BinaryIO) -> Exported:
    """Write `images`, `annotations` and `categories`, with one image for each inference, even without predictions.

    Boxes are xywh in pixels. `segmentation` has polygons in pixels, the corners of a box, or run-length codes for
    objects with holes. Inferences of other tasks, rejected requests, and images of unknown size are left out.
    """
    encoder = msgspec.json.Encoder()
    categories: dict[str, int] = {}
    changes = Counter[str]()
    written = annotated = left_out = 0
    with tempfile.TemporaryFile(dir=Path(file.name).parent) as annotations:
        file.write(b'{"info":{"description":"Inferences recorded by Charioteer"},"images":[')
        for batch in batches:
            for inference in batch:
                image = inference.image
                geometry = GEOMETRIES.get(inference.task_type)
                if geometry is None or inference.records is None or image is None or not image.width * image.height:
                    left_out += 1
                    continue
                written += 1
                file.write(b",\n" if written > 1 else b"\n")
                file.write(encoder.encode(_image(written, inference, image)))
                for shape, rings in read_outlines(geometry, inference.records, image.width, image.height, changes):
                    annotated += 1
                    category = categories.setdefault(shape.label, len(categories) + 1)
                    place = _place_of_outlines(rings, image) if geometry == "contour" else _place_of_box(rings[0])
                    ids = {"id": annotated, "image_id": written, "category_id": category, "score": shape.score}
                    annotations.write(b",\n" if annotated > 1 else b"\n")
                    annotations.write(encoder.encode({**ids, **place, "iscrowd": 0}))
        file.write(b'],"annotations":[')
        annotations.seek(0)
        shutil.copyfileobj(annotations, file)
        category_list = [{"id": number, "name": label, "supercategory": ""} for label, number in categories.items()]
        file.write(b'],"categories":' + encoder.encode(category_list) + b"}\n")
    return Exported(written=written, left_out=left_out, changed_objects=changes)


def _image(number: int, inference: RecordedInference, image: RecordedImage) -> dict[str, Any]:
    file_name = next((entry.value for entry in inference.metadata if entry.key == "file_name"), None)
    return {
        "id": number,
        "width": image.width,
        "height": image.height,
        "file_name": file_name if isinstance(file_name, str) else f"{image.digest[:2]}/{image.digest}",
        "date_captured": format_timestamp(inference.started),
        "inference": inference.id,
        "model": inference.model,
        "metadata": {entry.key: entry.value for entry in inference.metadata},
    }


def _place_of_box(corners: _Points) -> dict[str, Any]:
    """Return `bbox`, `area` and `segmentation` of a box from its corners in order."""
    (x, y), low, high = corners.T, corners.min(axis=0), corners.max(axis=0)
    area = abs(np.dot(x, np.roll(y, -1)) - np.dot(y, np.roll(x, -1))) / 2
    bbox = [*low.tolist(), *(high - low).tolist()]
    return {"bbox": bbox, "area": float(area), "segmentation": [corners.ravel().tolist()]}


def _place_of_outlines(outlines: Sequence[_Points], image: RecordedImage) -> dict[str, Any]:
    """Return `bbox`, `area` and `segmentation` of an object from its outlines through the centres of pixels.

    Area and box are computed from its pixels. COCO polygons cannot have holes, and cannot be lines or points.
    """
    low = np.floor(np.concatenate(outlines).min(axis=0))
    width, height = (np.ceil(np.concatenate(outlines).max(axis=0)) - low + 1).astype(int).tolist()
    shifted = [outline - low for outline in outlines]
    mask = mask_of_contours(shifted, width, height)
    segmentation: object = [(outline + _HALF_PIXEL).ravel().tolist() for outline in outlines]
    if min(map(len, outlines)) < 3 or (len(outlines) > 1 and _have_holes(shifted, mask)):
        segmentation = {"size": [image.height, image.width], "counts": _runs(outlines, image.width, image.height)}
    return {
        "bbox": [*low.tolist(), width, height],
        "area": int(np.count_nonzero(mask)),
        "segmentation": segmentation,
    }


def _have_holes(outlines: Sequence[_Points], mask: NDArray[np.uint8]) -> bool:
    """Return whether the even-odd rule removes pixels from the union of the outlines."""
    drawn = [mask_of_contours([outline], mask.shape[1], mask.shape[0]) for outline in outlines]
    return not np.array_equal(np.bitwise_or.reduce(drawn), mask)


def _runs(outlines: Sequence[_Points], width: int, height: int) -> list[int]:
    """Encode COCO's uncompressed run lengths of pixels in column-major order: alternating runs of 0 and 1, 0 first."""
    pixels = mask_of_contours(outlines, width, height).ravel("F")
    edges = np.flatnonzero(np.diff(pixels, prepend=np.uint8(0), append=np.uint8(0)))
    return np.diff(edges, prepend=0, append=pixels.size).tolist()
