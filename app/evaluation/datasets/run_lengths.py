"""Convert COCO's run-length masks, plain or compressed, into outlines.

The compressed form is that of ``maskApi.c`` in cocoapi (`rleFrString`): column-major run lengths, zeros first. Each
character has six bits, offset by 48: the fifth is a sign, the sixth means that more bits follow. From the third run on,
a value is the difference from the run before the last.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from app.evaluation.dataset import LabelErrors, Ring
from app.evaluation.datasets.files import as_list
from tasks.inference.error import quote_value
from tasks.vision.contours import contours_of_mask

__all__ = ("decode_mask", "decode_rings")

_MAX_PIXELS = 1 << 28
_MAX_BITS = 60


def decode_rings(
    value: Mapping[str, object], size: tuple[object, object], location: str, errors: LabelErrors
) -> tuple[Ring, ...] | None:
    """Return the outlines of a mask for the even-odd rule, through pixel centres as in OpenCV.

    Args:
        value: ``{"size": [height, width], "counts": ...}``.
        size: width and height of the image, which the mask must match.
        location: the location of the mask, for errors.
        errors: collects errors.
    """
    declared = value.get("size")
    sides = as_list(declared) or ()
    if len(sides) != 2 or not all(isinstance(side, int) and side > 0 for side in sides):
        errors.add(location, f"size: Expected height and width, got {quote_value(declared)}")
        return None
    height, width = cast("tuple[int, int]", tuple(sides))
    if height * width > _MAX_PIXELS or (
        all(isinstance(side_length, int) for side_length in size) and (width, height) != size
    ):
        errors.add(location, f"size: Expected that of the image, {size[1]} and {size[0]}, got {height} and {width}")
        return None
    try:
        mask = decode_mask(value.get("counts"), height, width)
    except ValueError as error:
        errors.add(location, f"counts: {error}")
        return None
    contours = contours_of_mask(mask)
    return tuple(tuple(map(_point, contour.tolist())) for contour in contours if len(contour) > 2) or None


def decode_mask(counts: object, height: int, width: int) -> NDArray[np.uint8]:
    """Decode a (height, width) mask of 0 and 1.

    Raises:
        ValueError: when the runs cannot be parsed, or do not match the size of the mask.
    """
    runs = _runs(counts)
    if min(runs, default=0) < 0 or sum(runs) != height * width:
        raise ValueError(f"Expected runs of {height * width} pixels together, got {quote_value(sum(runs))}")
    values = np.arange(len(runs), dtype=np.uint8) % 2
    return np.ascontiguousarray(np.repeat(values, runs).reshape(width, height).T)


def _runs(counts: object) -> list[int]:
    plain = as_list(counts)
    if plain is not None and all(isinstance(run, int) for run in plain):
        return cast("list[int]", plain)
    if not isinstance(counts, str) or not counts.isascii():
        raise ValueError(f"Expected a list of lengths, or their compressed form as a text, got {quote_value(counts)}")
    runs: list[int] = []
    value = shift = 0
    for code in counts.encode():
        chunk = code - 48
        value |= (chunk & 0x1F) << shift
        shift += 5
        if chunk & 0x20:
            if shift > _MAX_BITS:
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
