"""Masks to contours and back, and how far objects within contours overlap."""

from collections.abc import Sequence
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

__all__ = ("Contour", "contour_ious", "contours_of_mask", "mask_of_contours", "simplify")

_OVERLAP_CELLS = 256

Contour = NDArray[np.float32]
"""(P, 2) x, y of pixel centres, in pixels, y down; closed, its first point not repeated."""


def contours_of_mask(mask: NDArray[np.uint8]) -> list[Contour]:
    """Every boundary of a (height, width) mask, outer ones and holes alike, as `cv2.findContours` gives them.

    An outer boundary is followed by its holes, so that filling all the contours of an object by the even-odd rule
    (`mask_of_contours`) gives the mask back. A single pixel is a contour of one point; an empty mask has no contours.
    """
    found, hierarchy = cv2.findContours(mask, cv2.RETR_CCOMP, cv2.CHAIN_APPROX_SIMPLE)
    if not found:
        return []
    ordered: list[Contour] = []
    # Each row of the hierarchy: next, previous, first child, parent. With RETR_CCOMP every hole is a child of an outer
    # boundary, and there is no deeper level.
    links: list[list[int]] = hierarchy[0].tolist()
    for index, (_, _, hole, parent) in enumerate(links):
        if parent >= 0:
            continue
        ordered.append(_points(found[index]))
        while hole >= 0:
            ordered.append(_points(found[hole]))
            hole = links[hole][0]
    return ordered


def simplify(contours: Sequence[Contour], epsilon: float) -> list[Contour]:
    """Drop points that lie within `epsilon` pixels of the line between their neighbours (Douglas-Peucker)."""
    if epsilon <= 0:
        return list(contours)
    return [_points(cv2.approxPolyDP(contour.reshape(-1, 1, 2), epsilon, True)) for contour in contours]


def mask_of_contours(contours: Sequence[Contour], width: int, height: int) -> NDArray[np.uint8]:
    """A (height, width) mask of 0 and 1: the pixels inside an odd number of the contours, boundaries included.

    The boundary of a hole belongs to the object around it, because OpenCV walks holes along the pixels of that object.
    """
    mask = np.zeros((height, width), np.uint8)
    rounded = [np.rint(contour).astype(np.int32).reshape(-1, 1, 2) for contour in contours]
    if rounded:
        cv2.fillPoly(mask, rounded, 1)
        cv2.drawContours(mask, rounded, -1, 1, 1)
    return mask


def contour_ious(objects: Sequence[Sequence[Contour]], others: Sequence[Sequence[Contour]]) -> NDArray[np.float32]:
    """(K, M) intersection over union of the masks of K and M objects, each drawn on a grid of 256 cells at most.

    Args:
        objects: the contours of each, with at least one.
        others: the same, in the same frame.
    """
    if not objects or not others:
        return np.zeros((len(objects), len(others)), np.float32)
    points = np.concatenate([contour for each in (*objects, *others) for contour in each])
    low, extent = points.min(axis=0), np.ptp(points, axis=0)
    scale = np.float32(min(1.0, (_OVERLAP_CELLS - 1) / max(float(extent.max()), 1.0)))
    width, height = (np.rint(extent * scale).astype(int) + 1).tolist()
    masks = [
        np.concatenate(
            [mask_of_contours([(c - low) * scale for c in each], width, height).reshape(1, -1) for each in group]
        ).astype(np.float32)
        for group in (objects, others)
    ]
    first, second = masks
    shared = first @ second.T
    return shared / (first.sum(axis=1)[:, np.newaxis] + second.sum(axis=1) - shared)


def _points(contour: NDArray[Any]) -> Contour:
    return contour.reshape(-1, 2).astype(np.float32)
