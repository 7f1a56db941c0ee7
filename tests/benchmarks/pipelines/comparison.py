"""Compare the answers of a served model with those of a reference."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray
from PIL import Image as Pillow

from app.core.engine.models.servable import Servable
from tasks.image_segmentation import SegmentedObject
from tasks.inference.limits import Limits
from tasks.inference.tensor import Datatype, Tensor
from tasks.object_detection import DetectedObject, PosedObject
from tasks.oriented_object_detection import OrientedObject
from tasks.task import TaskType
from tests.support.data.requests import request
from tests.support.servers.server_process import ROOT

Pixels = NDArray[np.uint8]
Numbers = NDArray[np.float64]

_PHOTOS = ("photo.jpg", "scene.jpg", "shape.jpg", "oriented.jpg")
_CORNERS = 4
_NONE: Numbers = np.zeros((0, 0))


class Answer(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The objects or classes of one image: n class names, and (n, s) scores; s also counts visibilities of keypoints.

    `places` are the (n, c) x and y in pixels of boxes, corners or keypoints; `oriented` ones are four corners that may
    start with any of them. There are n `masks` (height, width), or none. `text` is the recognised text; None for other
    tasks.
    """

    labels: Sequence[str] = ()
    scores: Numbers = _NONE
    places: Numbers = _NONE
    oriented: bool = False
    masks: Sequence[NDArray[np.bool_]] = ()
    text: str | None = None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """The largest differences between two answers: coordinates in pixels, masks as a share of the image."""

    score: float = 0.0
    place: float = 0.0
    mask: float = 0.0
    texts: int = 0


class Family(msgspec.Struct, frozen=True):
    """A model that is served, and its reference; the table shows the names of both."""

    name: str
    pipeline: str
    path: Path
    expected: Callable[[Pixels], Answer]
    parameters: Mapping[str, object]


def photos() -> list[Pixels]:
    """Return the images of the fixtures, also at a third of their size, enlarged, and cut to a strip."""
    full = [np.asarray(Pillow.open(ROOT / "fixtures" / "images" / name).convert("RGB")) for name in _PHOTOS]
    thirds = [np.ascontiguousarray(pixels[::3, ::3]) for pixels in full]
    enlarged = np.asarray(Pillow.fromarray(full[0]).resize((1203, 901), Pillow.Resampling.BICUBIC))
    return [*full, *thirds, enlarged, np.ascontiguousarray(full[0][:150])]


def served(servable: Servable, pixels: Pixels, parameters: Mapping[str, object]) -> Answer:
    """Return the answer of a model."""
    height, width = pixels.shape[:2]
    tensor = Tensor(name="image", datatype=Datatype.UINT8, data=pixels)
    result = servable.predict(request(tensor, **parameters), Limits())
    records: Sequence[Any] = result.outputs[0].predictions[0].records()
    if servable.description.task_type is TaskType.IMAGE_TEXT_TO_TEXT:
        return Answer(text=records[0].answer)
    scores = [[record.score, *_visibilities(record)] for record in records]
    places = [_place(record, height, width) for record in records]
    return Answer(
        labels=[record.label for record in records],
        scores=np.array(scores, np.float64).reshape(len(records), -1 if records else 0),
        places=np.array(places, np.float64).reshape(len(records), -1 if records else 0),
        oriented=any(isinstance(record, OrientedObject) for record in records),
        masks=[_mask(record, height, width) for record in records if isinstance(record, SegmentedObject)],
    )


def _place(record: Any, height: int, width: int) -> Sequence[float]:
    if isinstance(record, OrientedObject):
        return np.concatenate(record.rings(width, height)).ravel().tolist()
    if not isinstance(record, DetectedObject):
        return ()
    points = record.keypoints if isinstance(record, PosedObject) else []
    coordinates = [coordinate for point in points for coordinate in point[:2]]
    return [record.xmin, record.ymin, record.xmax, record.ymax, *coordinates]


def _visibilities(record: Any) -> list[float]:
    points = record.keypoints if isinstance(record, PosedObject) else []
    return [value for point in points for value in point[2:]]


def _mask(record: SegmentedObject, height: int, width: int) -> NDArray[np.bool_]:
    mask = np.zeros((height, width), np.uint8)
    rings = [ring.astype(np.int32) for ring in record.rings(width, height)]
    cv2.fillPoly(mask, rings, 1)
    # The pixels of the border of a hole belong to the object.
    cv2.drawContours(mask, rings, -1, 1, 1)
    return mask.astype(np.bool_)


def difference(expected: Answer, found: Answer) -> Difference:
    """Return the largest differences, each object compared with the nearest one of its class."""
    if expected.text is not None:
        return Difference(texts=int(expected.text != found.text))
    if expected.masks and not expected.scores.size:
        return Difference(mask=_largest_mask_difference(expected, found))
    if sorted(expected.labels) != sorted(found.labels):
        return Difference(score=math.inf, place=math.inf)
    if expected.labels and expected.places.shape != found.places.shape:
        return Difference(place=math.inf)
    largest = Difference()
    left = list(range(len(found.labels)))
    for index, label in enumerate(expected.labels):
        own = [number for number in left if found.labels[number] == label]
        scores = np.abs(found.scores[own] - expected.scores[index]).max(axis=1)
        places = _distances(expected.places[index], found.places[own], oriented=expected.oriented)
        masks = [float((expected.masks[index] != found.masks[number]).mean()) for number in own if expected.masks]
        nearest = int((scores * 1000 + places + 1000 * np.array(masks or [0.0])).argmin())
        largest = Difference(
            score=max(largest.score, float(scores[nearest])),
            place=max(largest.place, float(places[nearest])),
            mask=max(largest.mask, masks[nearest] if masks else 0.0),
        )
        left.remove(own[nearest])
    return largest


def _distances(place: Numbers, places: Numbers, *, oriented: bool) -> Numbers:
    starts = range(_CORNERS) if oriented else (0,)
    distances = [np.abs(places - np.roll(place, 2 * start)).max(axis=1, initial=0) for start in starts]
    return np.min(distances, axis=0)


def _largest_mask_difference(expected: Answer, found: Answer) -> float:
    """Compare one mask for each class; a missing one is empty."""
    ours, theirs = (dict(zip(answer.labels, answer.masks, strict=True)) for answer in (expected, found))
    empty = np.zeros_like(next(iter((*ours.values(), *theirs.values()))))
    return max(float((ours.get(name, empty) != theirs.get(name, empty)).mean()) for name in {*ours, *theirs})
