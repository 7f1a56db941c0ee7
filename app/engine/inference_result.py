"""The result of one request: outputs, samples and timings."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tasks.inference.response import InferenceOutput, Prediction
from tasks.saliency.sampling import ExplanationTarget

__all__ = ("ExplanationTargets", "InferenceResult", "SampleResult", "Timings")


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """The time that each step of one inference took, in nanoseconds.

    Attributes:
        decode: reading images and parameters.
        model: the call of the model, including its own pre- and postprocessing.
        postprocess: thresholds, filters and order.
    """

    decode: int = 0
    model: int = 0
    postprocess: int = 0

    def combined_with(self, later: "Timings") -> "Timings":
        """Return the sums of both."""
        return Timings(
            decode=self.decode + later.decode,
            model=self.model + later.model,
            postprocess=self.postprocess + later.postprocess,
        )


class SampleResult(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One input of the model, such as an image, and its prediction.

    Attributes:
        input: index of the input in the request.
        index: index of the sample in that input.
        item: the decoded input of the model: an `ImageItem` for an image.
        prediction: the model's answer.
    """

    input: int
    index: int
    item: object
    prediction: Prediction


class InferenceResult(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The outputs of one request, with its batch size, timings and samples.

    Attributes:
        outputs: the outputs of the response.
        batch_size: number of samples that the model processed.
        timings: time of each step.
        samples: the samples that have an answer, in the order of the inputs.
    """

    outputs: Sequence[InferenceOutput]
    batch_size: int
    timings: Timings
    samples: Sequence[SampleResult] = ()

    def combined_with(self, later: "InferenceResult") -> "InferenceResult":
        """Return the sums of both and the samples of both, with the outputs of `later`."""
        return InferenceResult(
            outputs=later.outputs,
            batch_size=self.batch_size + later.batch_size,
            timings=self.timings.combined_with(later.timings),
            samples=[*self.samples, *later.samples],
        )


class ExplanationTargets(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A result, and the targets to explain: for each output, one for each of its images."""

    result: InferenceResult
    targets: Sequence[Sequence[ExplanationTarget[Any, Any]]]
