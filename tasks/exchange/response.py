"""What every protocol's response is written from."""

from collections.abc import Mapping, Sequence
from typing import Protocol, Self

import msgspec

from tasks.exchange.tensor import Tensor

__all__ = ("InferenceOutput", "InferenceResponse", "Prediction", "Record")

Record = msgspec.Struct
"""One item of an answer, with the exact field names of the Chariot page."""


class Prediction(Protocol):
    """A model's answer for one datum. It can present itself in two ways, and every protocol picks one of them."""

    def records(self) -> Sequence[Record]:
        """The answer as a list of objects of plain Python values, ready for any JSON encoder."""
        ...

    @classmethod
    def stack(cls, predictions: "Sequence[Self]", /) -> Sequence[Tensor]:
        """The answers for N data as named tensors, whose first dimension is N; the numbers are those of `records`."""
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
