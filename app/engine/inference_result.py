"""The result of one request: outputs, samples and timings."""

from collections.abc import Sequence

import msgspec

from tasks.inference.response import InferenceOutput, Prediction


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
