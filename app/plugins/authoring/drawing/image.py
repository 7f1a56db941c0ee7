"""Draw records and explanation heat maps on images."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.cli.terminal import check_output
from app.core.settings.model import ModelError
from app.plugins.authoring.drawing.palette import Colour, colour_of
from tasks.image_segmentation import SegmentedObject
from tasks.image_text_to_text import LocatedPoint
from tasks.inference.response import Record
from tasks.object_detection import PosedObject
from tasks.shapes import read_shape
from tasks.task import Geometry

Pixels = NDArray[np.uint8]

_FONT = cv2.FONT_HERSHEY_SIMPLEX
_PNG = ".png"
_FILL = 0.35
_HEAT = 0.55
_MIN_VISIBILITY = 0.5
_TEXT_COLOUR = (30, 30, 30)
_LUMA_WEIGHTS = (0.299, 0.587, 0.114)
"""Luma of ITU-R BT.601."""


def draw(
    pixels: Pixels,
    records: Sequence[Record],
    geometry: Geometry | None,
    labels: Sequence[str] = (),
    *,
    filled: bool = True,
) -> Pixels:
    """Return a copy of (height, width, 3) RGB `pixels` with the shapes of `records` of one image task type drawn on it.

    Objects that an answer locates may also be contours and points. Without a geometry, values are written as text.
    `labels` are all of the model, whose colours are far apart. If `filled`, the inside of contours is tinted.
    """
    canvas = pixels.copy()
    scale = max(0.4, min(canvas.shape[:2]) / 700)
    if geometry is None:
        _write(canvas, records, labels, scale)
        return canvas
    thickness = max(1, round(2 * scale))
    for record in records:
        if isinstance(record, LocatedPoint):
            colour = colour_of(record.label, labels)
            _dots(canvas, [(record.x, record.y)], colour, thickness)
            above = (round(record.x), round(record.y) - 4 * thickness)
            _tag(canvas, f"{record.label} {record.score:.2f}", above, colour, scale)
            continue
        shape = read_shape("contour" if isinstance(record, SegmentedObject) else geometry, record)
        colour = colour_of(shape.label, labels)
        rings = shape.rings(canvas.shape[1], canvas.shape[0])
        if isinstance(shape, SegmentedObject) and filled:
            _fill(canvas, rings, colour)
        cv2.polylines(canvas, [_integer(ring) for ring in rings], True, colour, thickness, cv2.LINE_AA)
        x, y = _integer(rings[0]).reshape(-1, 2).min(axis=0).tolist()
        _tag(canvas, f"{shape.label} {shape.score:.2f}", (x, y), colour, scale)
        if isinstance(record, PosedObject):
            _dots(canvas, record.keypoints, colour, thickness)
    return canvas


def overlay_heat_map(pixels: Pixels, saliency: NDArray[np.float32]) -> Pixels:
    """Return a copy of (height, width, 3) RGB `pixels` with a heat map of the (height, width) saliency, 0..1, on it.

    It is blue where the saliency is lowest, red where it is highest. Pixels are grey, to differ from its colours.
    """
    levels = np.rint(np.clip(saliency, 0, 1) * 255).astype(np.uint8)
    map_colours = cv2.cvtColor(cv2.applyColorMap(levels, cv2.COLORMAP_JET), cv2.COLOR_BGR2RGB)
    grey = cv2.cvtColor(cv2.cvtColor(pixels, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB)
    return np.asarray(cv2.addWeighted(map_colours, _HEAT, grey, 1 - _HEAT, 0), np.uint8)


def check_image_path(path: Path) -> None:
    """Check that `write_image` can write to `path`, before the slow work starts.

    Raise ModelError when the suffix of `path` names no image format, its folder does not exist, or it is a folder.
    """
    if not cv2.haveImageWriter(path.suffix or _PNG):
        raise ModelError(f"{path}: no image format has the ending {path.suffix!r}; use .png or .jpg")
    check_output(path)


def write_image(path: Path, pixels: Pixels) -> None:
    """Check `path`, and write (height, width, 3) RGB `pixels` in the format of its suffix, or as PNG without one."""
    check_image_path(path)
    encoded = cv2.imencode(path.suffix or _PNG, cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR))[1]
    path.write_bytes(encoded.tobytes())


def _fill(canvas: Pixels, contours: Sequence[NDArray[np.float64]], colour: Colour) -> None:
    layer = canvas.copy()
    cv2.fillPoly(layer, [_integer(contour) for contour in contours], colour)
    cv2.addWeighted(layer, _FILL, canvas, 1 - _FILL, 0, canvas)


def _dots(canvas: Pixels, keypoints: Sequence[Sequence[float]], colour: Colour, thickness: int) -> None:
    """Draw dots with an edge that contrasts with them, without keypoints that are more likely hidden than not."""
    radius = 2 * thickness
    for x, y, *visibility in keypoints:
        if not visibility or visibility[0] >= _MIN_VISIBILITY:
            cv2.circle(canvas, (round(x), round(y)), radius + 1, _ink_on(colour), cv2.FILLED, cv2.LINE_AA)
            cv2.circle(canvas, (round(x), round(y)), radius, colour, cv2.FILLED, cv2.LINE_AA)


def _tag(canvas: Pixels, text: str, corner: tuple[int, int], colour: Colour, scale: float) -> None:
    (width, height), base = cv2.getTextSize(text, _FONT, scale, 1)
    x = max(0, min(corner[0], canvas.shape[1] - width))
    y = max(height + base, corner[1])
    cv2.rectangle(canvas, (x, y - height - base), (x + width, y), colour, cv2.FILLED)
    cv2.putText(canvas, text, (x, y - base // 2), _FONT, scale, _ink_on(colour), 1, cv2.LINE_AA)


def _write(canvas: Pixels, records: Sequence[Record], labels: Sequence[str], scale: float) -> None:
    """Write one line for each record with its values, in the colour of its label if it has one."""
    y = 0
    for record in records:
        values = msgspec.structs.astuple(record)
        text = " ".join(f"{value:.2f}" if isinstance(value, float) else str(value) for value in values)
        label = getattr(record, "label", None)
        colour = colour_of(label, labels) if isinstance(label, str) else _TEXT_COLOUR
        (_, height), base = cv2.getTextSize(text, _FONT, scale, 1)
        y += height + 2 * base
        _tag(canvas, text, (0, y), colour, scale)


def _integer(points: NDArray[np.float64]) -> NDArray[np.int32]:
    return np.rint(points).astype(np.int32).reshape(-1, 1, 2)


def _ink_on(colour: Colour) -> Colour:
    """Return black or white, whichever contrasts more with `colour`."""
    return (0, 0, 0) if np.dot(colour, _LUMA_WEIGHTS) > 128 else (255, 255, 255)
