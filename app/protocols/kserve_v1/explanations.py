"""Explanations in V1: beside the predictions, a list for each instance."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from itertools import chain
from typing import Any

import cv2
import msgspec
import numpy as np
import pybase64

from app.protocols.kserve_v1.wire import WireExplanation, WireSaliency
from tasks.exchange.error import ErrorKind, InferenceError, brief, invalid
from tasks.exchange.response import Record
from tasks.explanation.explanation import Explanation

__all__ = ("SaliencyFormat", "saliency_format", "wire_explanations")

_FORMAT = "format"
_DECIMALS = 4


class SaliencyFormat(StrEnum):
    """The encoding of a saliency map."""

    PNG = "png"
    DATA = "data"


_MAX_PIXELS = {SaliencyFormat.DATA: 4_000_000, SaliencyFormat.PNG: 256_000_000}
"""Maximum pixels of all maps in a response: rows of numbers take memory, and PNG images take time."""

_ADVICE = {SaliencyFormat.DATA: "ask for png", SaliencyFormat.PNG: "ask for fewer max_objects, or send smaller images"}


def saliency_format(parameters: Mapping[str, object]) -> SaliencyFormat:
    """Return the `format` in a request's parameters, PNG by default.

    Raises:
        InferenceError: INVALID_REQUEST for an unknown format.
    """
    given = parameters.get(_FORMAT)
    if given is None:
        return SaliencyFormat.PNG
    if given not in tuple(SaliencyFormat):
        expected = " or ".join(f'"{known}"' for known in SaliencyFormat)
        raise invalid(f"Expected {expected}, got {brief(given)}", f"parameters.{_FORMAT}")
    return SaliencyFormat(given)


def wire_explanations(
    predictions: Sequence[Sequence[Record]],
    explanations: Sequence[Sequence[Sequence[Explanation]]],
    wanted: SaliencyFormat,
) -> list[list[WireExplanation]]:
    """Return the explanations of every instance, parallel to `predictions`.

    Raises:
        InferenceError: TOO_LARGE for more pixels than a response may hold.
    """
    found = list(chain.from_iterable(explanations))
    count = sum(explanation.width * explanation.height for explanation in chain.from_iterable(found))
    if count > _MAX_PIXELS[wanted]:
        message = (
            f"Expected to write at most {_MAX_PIXELS[wanted]:,} pixels as {wanted}, got {count:,}; {_ADVICE[wanted]}"
        )
        raise InferenceError(ErrorKind.TOO_LARGE, message, f"parameters.{_FORMAT}")
    return [
        [_wire_explanation(explanation, records, wanted) for explanation in group]
        for records, group in zip(predictions, found, strict=True)
    ]


def _wire_explanation(explanation: Explanation, records: Sequence[Record], wanted: SaliencyFormat) -> WireExplanation:
    return WireExplanation(
        label=explanation.label,
        score=explanation.score,
        index=next((index for index, record in enumerate(records) if record == explanation.record), msgspec.UNSET),
        saliency=_saliency(explanation, wanted),
        method=explanation.method,
        samples=explanation.samples,
        seed=explanation.seed,
    )


def _saliency(explanation: Explanation, wanted: SaliencyFormat) -> WireSaliency:
    saliency, shape = explanation.saliency, (explanation.height, explanation.width)
    if wanted is SaliencyFormat.DATA:
        rows: list[list[float]] = np.round(saliency.astype(np.float64), _DECIMALS).tolist()
        return WireSaliency(shape=shape, data=rows)
    grey: Any = np.rint(saliency * 255).astype(np.uint8)
    _, encoded = cv2.imencode(".png", grey)
    return WireSaliency(shape=shape, png=pybase64.b64encode_as_string(encoded.tobytes()))
