"""COCO's run-length masks, plain and compressed, as outlines.

The compressed form is that of ``maskApi.c`` in cocoapi (`rleFrString`): lengths of runs down the columns, zeros first,
six bits a character from 48 on, the fifth bit a sign, the sixth for "more follows"; from the third run on, the
difference from the run before the last.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from app.evaluation.dataset import Faults, Ring
from app.evaluation.datasets.files import listed
from tasks.exchange.error import brief
from tasks.vision.contours import contours_of_mask

__all__ = ("mask_of_run_lengths", "rings_of_run_lengths")

_MOST_PIXELS = 1 << 28
_MOST_BITS = 60


def rings_of_run_lengths(
    value: Mapping[str, object], size: tuple[object, object], place: str, faults: Faults
) -> tuple[Ring, ...] | None:
    """The boundaries of a mask by the even-odd rule, as OpenCV walks them, from pixel centre to pixel centre.

    Args:
        value: ``{"size": [height, width], "counts": ...}``.
        size: width and height of the image, which the mask has to fit.
        place: of the mask.
        faults: takes what is wrong.
    """
    declared = value.get("size")
    sides = listed(declared) or ()
    if len(sides) != 2 or not all(isinstance(each, int) and each > 0 for each in sides):
        faults.add(place, f"size: Expected height and width, got {brief(declared)}")
        return None
    height, width = cast("tuple[int, int]", tuple(sides))
    if height * width > _MOST_PIXELS or (all(isinstance(each, int) for each in size) and (width, height) != size):
        faults.add(place, f"size: Expected that of the image, {size[1]} and {size[0]}, got {height} and {width}")
        return None
    try:
        mask = mask_of_run_lengths(value.get("counts"), height, width)
    except ValueError as error:
        faults.add(place, f"counts: {error}")
        return None
    contours = contours_of_mask(mask)
    return tuple(tuple(map(_point, contour.tolist())) for contour in contours if len(contour) > 2) or None


def mask_of_run_lengths(counts: object, height: int, width: int) -> NDArray[np.uint8]:
    """A (height, width) mask of 0 and 1.

    Raises:
        ValueError: when the runs are not as long as the mask, or cannot be read.
    """
    runs = _runs(counts)
    if min(runs, default=0) < 0 or sum(runs) != height * width:
        raise ValueError(f"Expected runs of {height * width} pixels together, got {brief(sum(runs))}")
    values = np.arange(len(runs), dtype=np.uint8) % 2
    return np.ascontiguousarray(np.repeat(values, runs).reshape(width, height).T)


def _runs(counts: object) -> list[int]:
    plain = listed(counts)
    if plain is not None and all(isinstance(each, int) for each in plain):
        return cast("list[int]", plain)
    if not isinstance(counts, str) or not counts.isascii():
        raise ValueError(f"Expected a list of lengths, or their compressed form as a text, got {brief(counts)}")
    runs: list[int] = []
    value = shift = 0
    for code in counts.encode():
        chunk = code - 48
        value |= (chunk & 0x1F) << shift
        shift += 5
        if chunk & 0x20:
            if shift > _MOST_BITS:
                raise ValueError("Expected lengths of runs, got a number without end")
            continue
        if chunk & 0x10:
            value -= 1 << shift
        runs.append(value + runs[-2] if len(runs) > 2 else value)
        value = shift = 0
    if shift:
        raise ValueError("Expected whole numbers, got a text that breaks off")
    return runs


def _point(values: Sequence[float]) -> tuple[float, float]:
    return values[0], values[1]
