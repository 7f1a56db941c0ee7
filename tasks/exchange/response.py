"""What every protocol's response is written from."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

__all__ = ("InferenceOutput", "InferenceResponse", "Prediction", "Record")

Record = msgspec.Struct
"""One item of an answer, with the exact field names of the Chariot page."""


class Prediction(Protocol):
    """A model's answer for one datum."""

    def records(self) -> Sequence[Record]:
        """The answer as a list of objects of plain Python values, ready for any JSON encoder."""
        ...


class InferenceOutput(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The answer to one input: a prediction for each datum the input held."""

    name: str
    predictions: Sequence[Prediction]
    parameters: Mapping[str, object] = {}


class InferenceResponse(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The answer to one request, outputs in the order of the inputs they answer."""

    id: str
    model_name: str
    model_version: str
    outputs: Sequence[InferenceOutput]
