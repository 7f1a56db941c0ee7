"""Convert masks to contours and back, and compute the overlap of contours."""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

_OVERLAP_CELLS = 256
_MAX_DISTANCE = 1e6
"""Maximum distance of points from the image, in pixels: OpenCV needs seconds to draw farther ones."""
MAX_PIXELS = 1 << 28
"""Maximum size of a mask, so that it fits into memory."""

Contour = NDArray[np.float32]
"""(P, 2) x, y of pixel centres in pixels, y down; closed, without a repeated first point."""


def contours_of_mask(mask: NDArray[np.uint8]) -> list[Contour]:
    """Return all outer boundaries and holes of a (height, width) mask, as `cv2.findContours` does.

    Each outer boundary is followed by its holes, so that filling the contours of an object with the even-odd rule
    (`mask_of_contours`) restores the mask. A single pixel is a contour of one point; an empty mask has no contours.
    """
    contours, hierarchy = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    if not contours:
        return []
    ordered: list[Contour] = []
    # Each row of the hierarchy has next, previous, first child and parent. With RETR_CCOMP every hole is a child of an
    # outer boundary, without deeper levels.
    links: list[list[int]] = hierarchy[0].tolist()
    for index, (_, _, hole, parent) in enumerate(links):
        if parent >= 0:
            continue
        ordered.append(_points(contours[index]))
        while hole >= 0:
            ordered.append(_points(contours[hole]))
            hole = links[hole][0]
    return ordered


def simplify(contours: Sequence[Contour], epsilon: float) -> list[Contour]:
    """Drop points that lie within `epsilon` pixels of the line between their neighbours (Douglas-Peucker)."""
    if epsilon <= 0:
        return list(contours)
    return [_points(cv2.approxPolyDP(contour.reshape(-1, 1, 2), epsilon, True)) for contour in contours]


def mask_of_contours(contours: Sequence[NDArray[np.floating[Any]]], width: int, height: int) -> NDArray[np.uint8]:
    """Return a (height, width) mask of 0 and 1: the pixels inside an odd number of contours, including boundaries.

    The boundary of a hole belongs to the object, because OpenCV traces holes along the object's pixels.
    """
    mask = np.zeros((height, width), np.uint8)
    rounded = [np.rint(contour).astype(np.int32).reshape(-1, 1, 2) for contour in contours]
    if rounded:
        cv2.fillPoly(mask, rounded, 1)
        cv2.drawContours(mask, rounded, -1, 1, 1)
    return mask


def contours_inside(contours: Sequence[NDArray[np.float64]], width: int, height: int) -> list[NDArray[np.float64]]:
    """Return the contours of the pixels of an object that lie in an image; `contours` if all of them do.

    Without such pixels there are no contours. The image has at most `MAX_PIXELS`.
    """
    points = np.concatenate(contours)
    if np.all(points >= 0) and np.all(points <= (width - 1, height - 1)):
        return list(contours)
    near = [np.clip(contour, -_MAX_DISTANCE, _MAX_DISTANCE) for contour in contours]
    return [contour.astype(np.float64) for contour in contours_of_mask(mask_of_contours(near, width, height))]


def contour_ious(objects: Sequence[Sequence[Contour]], others: Sequence[Sequence[Contour]]) -> NDArray[np.float32]:
    """Return (K, M) intersection over union of K and M objects, drawn on a common grid of at most 256 x 256 cells.

    Each object has at least one contour, all in the same frame.
    """
    if not objects or not others:
        return np.zeros((len(objects), len(others)), np.float32)
    points = np.concatenate([contour for contours in (*objects, *others) for contour in contours])
    low, extent = points.min(axis=0), np.ptp(points, axis=0)
    scale = np.float32(min(1.0, (_OVERLAP_CELLS - 1) / max(float(extent.max()), 1.0)))
    width, height = (np.rint(extent * scale).astype(int) + 1).tolist()

    def masks(group: Sequence[Sequence[Contour]]) -> NDArray[np.float32]:
        scaled = ([(contour - low) * scale for contour in contours] for contours in group)
        rows = [mask_of_contours(contours, width, height).ravel() for contours in scaled]
        return np.array(rows, np.float32)

    first, second = masks(objects), masks(others)
    intersection = first @ second.T
    return intersection / (first.sum(axis=1)[:, np.newaxis] + second.sum(axis=1) - intersection)


def bounds_of(objects: Sequence[Sequence[Contour]]) -> NDArray[np.float32]:
    """Return (N, 4) xyxy boxes around the pixels of each object's contours; NaN for objects without points."""
    boxes = np.full((len(objects), 4), np.nan, np.float32)
    for box, contours in zip(boxes, objects, strict=True):
        points = np.concatenate([np.zeros((0, 2), np.float32), *contours])
        if len(points):
            box[:2], box[2:] = points.min(axis=0), points.max(axis=0) + 1
    return boxes


def _points(contour: NDArray[Any]) -> Contour:
    return contour.reshape(-1, 2).astype(np.float32)
