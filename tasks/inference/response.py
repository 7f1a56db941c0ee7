"""The result of a request, and the neutral response. Each protocol has its own `encode` for it."""

from collections.abc import Mapping, Sequence
from typing import Protocol, Self, TypeVar

import msgspec

from tasks.inference.parameters import InputParameters
from tasks.inference.tensor import Tensor

StructT = TypeVar("StructT", bound=msgspec.Struct)

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
    """The answer to one input: its name, and a prediction for each of its samples.

    `index` is that of the input in the request; of the first one if the output answers several.
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
        """Return the predictions of all outputs, in order."""
        return [prediction for output in self.outputs for prediction in output.predictions]

    def stack(self) -> Sequence[Tensor]:
        """Return the predictions of all outputs as tensors."""
        predictions = self.predictions
        return type(predictions[0]).stack(predictions)


class SampleResult(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One decoded input of the model, such as an `ImageItem`, and its prediction.

    `input` is the index of the input in the request, and `index` the position of the sample in the input.
    """

    input: int
    index: int
    item: object
    prediction: Prediction

    def of(self, kind: type[StructT]) -> StructT:
        """Return the input's parameters of a plugin, which lists this type; the defaults for tensors."""
        parameters = getattr(self.item, "parameters", None)
        return parameters.of(kind) if isinstance(parameters, InputParameters) else kind()


class InferenceResult(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The outputs of one request, with its batch size, timings and samples.

    Attributes:
        batch_size: number of samples that the model processed.
        decode_ns: nanoseconds for reading images and parameters.
        model_ns: nanoseconds of the calls of the model, including its own pre- and postprocessing.
        postprocess_ns: nanoseconds for thresholds, filters and order.
        samples: the samples that have an answer, in the order of the inputs.
    """

    outputs: Sequence[InferenceOutput]
    batch_size: int
    decode_ns: int = 0
    model_ns: int = 0
    postprocess_ns: int = 0
    samples: Sequence[SampleResult] = ()

    def combined_with(self, later: "InferenceResult") -> "InferenceResult":
        """Return the sums of both and the samples of both, with the outputs of `later`."""
        return InferenceResult(
            outputs=later.outputs,
            batch_size=self.batch_size + later.batch_size,
            decode_ns=self.decode_ns + later.decode_ns,
            model_ns=self.model_ns + later.model_ns,
            postprocess_ns=self.postprocess_ns + later.postprocess_ns,
            samples=[*self.samples, *later.samples],
        )
