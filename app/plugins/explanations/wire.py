"""Explanations in V1: beside the predictions, a list for each instance.

Each has the predicted `label` (empty for a row of a model with one output) and its `score`: 0..1, or the
output for a row. `index` is the index of the explained prediction in the instance's
predictions, missing if it is not among them. `samples` is the number of changed copies of the input that the model was
run on. The same `seed` gives the same explanation.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any

import cv2
import numpy as np
import pybase64

from app.plugins.explanations.pixels import Explanation
from app.plugins.explanations.rows import RowImportance
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value
from tasks.inference.response import Record

_DECIMALS = 4


class SaliencyFormat(StrEnum):
    """The encoding of a saliency map."""

    PNG = "png"
    DATA = "data"


_MAX_PIXELS = {SaliencyFormat.DATA: 4_000_000, SaliencyFormat.PNG: 256_000_000}
"""Maximum pixels of all maps in a response: rows of numbers take memory, and PNG images take time."""

_ADVICE = {SaliencyFormat.DATA: "ask for png", SaliencyFormat.PNG: "ask for fewer max_objects, or send smaller images"}


def read_saliency_format(parameters: Mapping[str, object]) -> SaliencyFormat:
    """Return the `format` in a request's parameters, PNG by default. Raise INVALID_REQUEST for an unknown format."""
    requested = parameters.get("format")
    if requested is None:
        return SaliencyFormat.PNG
    if requested not in tuple(SaliencyFormat):
        raise invalid(f'Expected "png" or "data", got {quote_value(requested)}', "parameters.format")
    return SaliencyFormat(requested)


def wire_explanations(
    predictions: Sequence[Sequence[Record]],
    explanations: Sequence[Sequence[Explanation]],
    encoding: SaliencyFormat,
) -> list[list[dict[str, Any]]]:
    """Return the explanations of every image, parallel to `predictions`.

    `saliency` is the importance of each pixel of the upright original image: `shape` has its height and width. `data`
    has rows of numbers, 0..1, or `png` has base64 of an 8-bit grey PNG, 255 for 1. Raise TOO_LARGE for more pixels than
    a response may hold.
    """
    count = sum(explanation.width * explanation.height for explanation in chain.from_iterable(explanations))
    if count > _MAX_PIXELS[encoding]:
        message = f"Expected to write at most {_MAX_PIXELS[encoding]:,} pixels as {encoding}, got {count:,}"
        raise InferenceError(ErrorKind.TOO_LARGE, f"{message}; {_ADVICE[encoding]}", "parameters.format")
    return [
        [
            {
                **_explained(explanation, records),
                "saliency": _saliency(explanation, encoding),
                "method": explanation.method,
                "samples": explanation.samples,
                "seed": explanation.seed,
            }
            for explanation in group
        ]
        for records, group in zip(predictions, explanations, strict=True)
    ]


def wire_row_explanations(importances: Sequence[RowImportance]) -> list[dict[str, Any]]:
    """Return the explanation of every row.

    `importance_scores` are in the shape of the row, or an object by name for several inputs. They add up to `score`
    minus `baseline_score`, the output for the baseline.
    """
    return [
        {
            "importance_scores": _importance_scores(importance),
            "label": importance.label,
            "score": importance.score,
            "baseline_score": importance.baseline_score,
            "method": "shapley",
            "samples": importance.samples,
            "seed": importance.seed,
        }
        for importance in importances
    ]


def _importance_scores(importance: RowImportance) -> object:
    by_name = {name: np.atleast_1d(scores).tolist() for name, scores in importance.importances.items()}
    return next(iter(by_name.values())) if len(by_name) == 1 else by_name


def _explained(explanation: Explanation, records: Sequence[Record]) -> dict[str, Any]:
    """Return the label, the score and the index of the explained prediction."""
    index = next((index for index, record in enumerate(records) if record == explanation.record), None)
    explained = {"label": explanation.label, "score": explanation.score}
    return explained if index is None else {**explained, "index": index}


def _saliency(explanation: Explanation, encoding: SaliencyFormat) -> dict[str, Any]:
    saliency, shape = explanation.saliency, (explanation.height, explanation.width)
    if encoding is SaliencyFormat.DATA:
        return {"shape": shape, "data": np.round(saliency.astype(np.float64), _DECIMALS).tolist()}
    gray_image: Any = np.rint(saliency * 255).astype(np.uint8)
    _, encoded = cv2.imencode(".png", gray_image)
    return {"shape": shape, "png": pybase64.b64encode_as_string(encoded.tobytes())}
