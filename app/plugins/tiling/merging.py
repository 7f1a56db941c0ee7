"""Merge the predictions for the tiles of one image to one prediction for the image."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.tiling.fragments import Objects, is_cut, join, suppress
from app.plugins.tiling.parameters import TilingSettings
from app.plugins.tiling.tile_shapes import Boxes, OrientedBoxes, Outlines, Shapes
from app.plugins.tiling.tiles import Tile
from tasks.image_segmentation import Segments
from tasks.object_detection import DetectionInput, Detections
from tasks.oriented_object_detection import OrientedDetections
from tasks.saliency.probe import take

Prediction = Detections | OrientedDetections | Segments

MAX_MERGED = 10_000
"""Objects of all tiles that are compared, the best ones. More would take many seconds."""


class TileMerger:
    """Collect the predictions for the tiles of an image; `scale` are image pixels per input pixel along x and y."""

    def __init__(self, scale: tuple[float, float], item: DetectionInput, settings: TilingSettings) -> None:
        self._width, self._height = item.image.width, item.image.height
        self._scale, self._settings = scale, settings
        self._floor, self._parameters = item.floor, item.parameters
        self._predictions: list[Any] = []
        self._numbers: list[NDArray[np.intp]] = []
        self._cut: list[NDArray[np.bool_]] = []

    def add(self, tile: Tile, prediction: Prediction) -> None:
        """Add the prediction for a tile, in pixels of the tile. Predictions below the floor are left out."""
        moved: Any = _moved(prediction, tile, self._width, self._height)
        bounds = _shapes(moved).bounds
        valid = np.isfinite(bounds).all(axis=1) & (moved.scores >= self._floor)
        indices = np.flatnonzero(valid)
        self._numbers.append(np.full(len(indices), len(self._predictions), np.intp))
        self._cut.append(is_cut(bounds[indices], tile, self._width, self._height, self._scale))
        self._predictions.append(take(moved, indices.tolist()))

    def result(self) -> Prediction:
        """Return the prediction for the whole image, before the thresholds and limits of the request."""
        whole = _joined(self._predictions)
        best = np.sort((-whole.scores).argsort(kind="stable")[:MAX_MERGED])
        if len(best) < len(whole.labels):
            whole = take(whole, best.tolist())
        shapes = _shapes(whole)
        classes = np.unique(np.array(whole.labels, object), return_inverse=True)[1]
        found = Objects(
            shapes=shapes,
            scores=whole.scores,
            class_ids=np.zeros_like(classes) if self._parameters.agnostic else classes,
            tiles=np.concatenate(self._numbers)[best],
            cut=np.concatenate(self._cut)[best],
        )
        if self._settings.merge == "join":
            groups = join(found, self._parameters.iou_threshold)
        else:
            every = np.arange(len(whole.labels))
            kept = suppress(found, every, self._parameters.iou_threshold) if self._settings.merge == "nms" else every
            groups = list(kept[:, np.newaxis])
        merged = take(whole, [int(group[0]) for group in groups])
        places: Any = merged.contours if isinstance(merged, Segments) else merged.boxes
        for position, group in enumerate(groups):
            if len(group) > 1:
                places[position] = shapes.union(group)
        return merged


def _shapes(prediction: Prediction) -> Shapes:
    if isinstance(prediction, Segments):
        return Outlines(prediction.contours)
    return (OrientedBoxes if isinstance(prediction, OrientedDetections) else Boxes)(prediction.boxes)


def _moved(prediction: Prediction, tile: Tile, width: int, height: int) -> Prediction:
    """Return a prediction in pixels of the whole image. Boxes are clipped to the tile: the model saw no more."""
    corner = np.array([tile.left, tile.top], np.float32)
    replace = partial(msgspec.structs.replace, prediction)
    if isinstance(prediction, Segments):
        return replace(contours=[[contour + corner for contour in contours] for contours in prediction.contours])
    boxes = prediction.boxes.astype(np.float32)
    if isinstance(prediction, OrientedDetections):
        boxes[:, :2] += corner
        return replace(boxes=boxes, width=width, height=height)
    boxes += np.tile(corner, 2)
    low, high = (tile.left, tile.top) * 2, (tile.right, tile.bottom) * 2
    keypoints = prediction.keypoints
    if keypoints is not None:
        keypoints = keypoints.copy()
        keypoints[..., :2] += corner
    return replace(boxes=np.clip(boxes, low, high, dtype=np.float32), keypoints=keypoints)


def _joined(predictions: Sequence[Any]) -> Any:
    """Return one prediction with the objects of all, in order."""
    values: dict[str, Any] = {}
    for name, value in msgspec.structs.asdict(predictions[0]).items():
        parts = [getattr(prediction, name) for prediction in predictions]
        if isinstance(value, np.ndarray):
            values[name] = np.concatenate(parts)
        elif isinstance(value, Sequence):
            values[name] = [item for part in parts for item in part]
    return msgspec.structs.replace(predictions[0], **values)
