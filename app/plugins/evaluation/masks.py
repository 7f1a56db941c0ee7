"""Masks as COCO's run lengths, which faster-coco-eval compares pixel by pixel."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.plugins.evaluation.answers import PredictedObject
from app.plugins.evaluation.dataset import LabelledObject, RunLengths, import_optional
from tasks.vision.contours import mask_of_contours


def read_run_lengths(counts: object, height: int, width: int) -> RunLengths:
    """Check the run lengths of a mask, plain or compressed, and return them compressed.

    Raise ValueError when they cannot be parsed, or do not match the size of the mask.
    """
    try:
        mask = _api().segmToRle({"size": [height, width], "counts": counts}, width, height)
        decode_mask(mask)
    except (RuntimeError, TypeError, ValueError) as error:
        reason = str(error).partition(" (#")[0]
        raise ValueError(f"Expected run lengths of {height} x {width} pixels: {reason}") from None
    return mask


def truth_mask(labelled: LabelledObject, width: int, height: int) -> RunLengths:
    """Return the pixels of an object: its mask, or its polygons, or else its box, drawn as COCO's tools do."""
    if labelled.mask is not None:
        return labelled.mask
    polygons = [[float(value) for point in ring for value in point] for ring in labelled.outlines]
    return _api().segmToRle(polygons, width, height)


def predicted_mask(prediction: PredictedObject, width: int, height: int) -> RunLengths:
    """Return the pixels inside the contours of a prediction, which run through the centres of pixels."""
    contours = [np.array(ring, np.float32).reshape(-1, 2) for ring in prediction.rings or () if ring]
    return _api().encode(np.asfortranarray(mask_of_contours(contours, width, height)))


def decode_mask(mask: RunLengths) -> NDArray[np.uint8]:
    """Return the (height, width) mask of 0 and 1."""
    return _api().decode(mask)


def _api() -> Any:
    return import_optional("faster_coco_eval.core.mask")
