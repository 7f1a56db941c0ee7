"""The neutral response. Each protocol has its own `encode` for it."""

from collections.abc import Mapping, Sequence
from typing import Protocol, Self

import msgspec

from tasks.inference.tensor import Tensor

Record = msgspec.Struct
"""One item of an answer, with the exact field names of the Chariot page."""


class Prediction(Protocol):
    """A model's answer for one sample, as records or as tensors. Each protocol uses one of these forms."""

    def records(self) -> Sequence[Record]:
        """Return the answer as a list of objects with plain Python values, for a JSON encoder."""
        ...

    @classmethod
    def stack(cls, predictions: "Sequence[Self]", /) -> Sequence[Tensor]:
        """Return the answers for N samples as named tensors with first dimension N and the numbers of `records`."""
        ...


class InferenceOutput(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The answer to one input: a prediction for each of its samples.

    Attributes:
        name: the name of the input.
        index: the index of the input in the request; of the first one if the output answers several.
        predictions: one for each sample.
        parameters: parameters of the output.
    """

    name: str
    index: int = 0
    predictions: Sequence[Prediction]
    parameters: Mapping[str, object] = {}


class InferenceResponse(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The answer to one request. The outputs are in the order of the inputs."""

    id: str
    model_name: str
    model_version: str
    outputs: Sequence[InferenceOutput]

    @property
    def predictions(self) -> Sequence[Prediction]:
        """The predictions of all outputs, in order."""
        return [prediction for output in self.outputs for prediction in output.predictions]

    def stack(self) -> Sequence[Tensor]:
        """Return the predictions of all outputs as tensors."""
        predictions = self.predictions
        return type(predictions[0]).stack(predictions)
