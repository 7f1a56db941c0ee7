"""What a model answered to one request, and what that took."""

from collections.abc import Sequence
from typing import Any

import msgspec

from tasks.exchange.response import InferenceOutput, Prediction
from tasks.explanation.sampling import Subject

__all__ = ("Answered", "Datum", "Findings", "Timings")


class Timings(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time of one inference went, in nanoseconds.

    Attributes:
        decode: reading images and parameters.
        model: the model's call, its own pre- and post-processing included.
        refine: thresholds, filters, order.
    """

    decode: int = 0
    model: int = 0
    refine: int = 0

    def and_then(self, later: "Timings") -> "Timings":
        """What both took."""
        return Timings(
            decode=self.decode + later.decode, model=self.model + later.model, refine=self.refine + later.refine
        )


class Datum(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One thing that the model was shown, and its answer.

    Attributes:
        input: which input of the request it stands in.
        index: which datum of that input it is.
        item: what the task made of it for the model: `ImageItem` for an image.
        prediction: what was answered.
    """

    input: int
    index: int
    item: object
    prediction: Prediction


class Answered(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The outputs of one request, how many data the model saw for them, and what that took.

    Attributes:
        outputs: to be written.
        batch_size: how many data the model saw.
        timings: what that took.
        data: those that were answered, in the order of the inputs.
    """

    outputs: Sequence[InferenceOutput]
    batch_size: int
    timings: Timings
    data: Sequence[Datum] = ()

    def and_then(self, later: "Answered") -> "Answered":
        """What both took and answered, with the outputs of `later`."""
        return Answered(
            outputs=later.outputs,
            batch_size=self.batch_size + later.batch_size,
            timings=self.timings.and_then(later.timings),
            data=[*self.data, *later.data],
        )


class Findings(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An answer, and what there is to explain in it: for each output, for each of its images."""

    answered: Answered
    subjects: Sequence[Sequence[Subject[Any, Any]]]
