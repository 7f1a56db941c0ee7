"""What observers are told of every inference, whatever its protocol and its end."""

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from app.engine.servable import Timings
from metadata.entry import Metadata
from tasks.exchange.error import ErrorKind

__all__ = ("Caller", "InferenceEvent", "InferenceObserver")


class Caller(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request came from.

    Attributes:
        protocol: the wire protocol's name.
        request_id: the value of X-Request-ID, given or made.
        base_id: the value of Chariot-Inference-Base-ID, when the platform sent one.
        trace: the sender's trace context, W3C's `traceparent` and `tracestate`, as far as they came.
    """

    protocol: str
    request_id: str
    base_id: str | None = None
    trace: Mapping[str, str] = {}


class InferenceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One request that came to its end.

    Attributes:
        caller: where it came from.
        model_name: the model that was asked, empty when the request never said so.
        model_version: the version that answered, empty when none did.
        outcome: None for an answer, else why there was none.
        error: the sentence that the sender got, empty for an answer.
        batch_size: images, or texts, that the model saw.
        queue: nanoseconds that the request waited for a worker.
        total: nanoseconds from arrival to the end, waiting included.
        timings: where the time in between went.
        metadata: of each output, as far as it could be read.
        explanation: whether reasons were asked for beside the answer. Such a request takes hundreds of times as long.
        samples: masked copies of the images that the model was shown besides, for an explanation.
    """

    caller: Caller
    model_name: str
    model_version: str
    outcome: ErrorKind | None
    error: str
    batch_size: int
    queue: int
    total: int
    timings: Timings
    metadata: Sequence[Metadata]
    explanation: bool = False
    samples: int = 0


class InferenceObserver(Protocol):
    """Is told of every inference, from the worker thread that did it. Neither blocks nor raises."""

    def observe(self, event: InferenceEvent, /) -> None: ...
