"""The event that observers receive for every inference, of any protocol and outcome."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Protocol

import msgspec

from app.engine.inference_result import InferenceResult, Timings
from metadata.entry import Metadata
from tasks.inference.error import ErrorKind
from tasks.inference.request import InferenceRequest

__all__ = ("InferenceEvent", "InferenceObserver", "OutputAnnotator", "RecordSink", "RequestInfo")


class RequestInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a request.

    Attributes:
        protocol: the name of the wire protocol.
        request_id: the value of X-Request-ID, received or generated.
        base_id: the value of Chariot-Inference-Base-ID, if the platform sent it.
        trace: the client's trace context: the W3C headers `traceparent` and `tracestate` that were received.
        response_headers: headers of the response (gRPC: trailing metadata) by name, filled while the request is
            processed.
        timeout: the client's timeout in seconds, None if it sent none, NaN if it sent an invalid one.
        disconnected: completes when the client has disconnected; None if a disconnect cancels the handler anyway.
        client: the name of the client's API key, or ``jwt:`` and the subject of its token; empty without
            authentication.
        address: the address of the peer, which may be a shared proxy; empty if it is unknown.
    """

    protocol: str
    request_id: str
    base_id: str | None = None
    trace: Mapping[str, str] = {}
    response_headers: dict[str, str] = {}
    timeout: float | None = None
    disconnected: Callable[[], Awaitable[None]] | None = None
    client: str = ""
    address: str = ""


class InferenceEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One finished request.

    Attributes:
        info: the origin of the request.
        model_name: the requested model, empty if the request did not name one.
        model_version: the version that answered, empty if none did.
        outcome: None for success, otherwise the kind of error.
        error: the error message that the client got, empty for success.
        batch_size: images, or texts, that the model processed.
        queue: nanoseconds that the request waited for a worker.
        total: nanoseconds from arrival to the end, including the wait. For observers it includes the time of recording.
        arrived: arrival on the clock of `time.perf_counter_ns`, in nanoseconds.
        timings: the time of each step.
        metadata: metadata of the inputs. A value that several inputs share appears once.
        explanation: whether the client requested explanations, which take hundreds of times as long.
        explanation_samples: masked copies of the images that the model processed for explanations.
        id: unique id of the event.
        timestamp: arrival in nanoseconds since 1970 (UTC).
        task_type: of the model that answered, empty if none did.
        request: the decoded request, None if it could not be decoded.
        result: the result, None without an answer; partial if a stream was interrupted.
        count: number of requests in this event: refusals before a body is read are reported together.
    """

    info: RequestInfo
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
    explanation_samples: int = 0
    id: str = ""
    arrived: int = 0
    timestamp: int = 0
    task_type: str = ""
    request: InferenceRequest | None = None
    result: InferenceResult | None = None
    count: int = 1


class InferenceObserver(Protocol):
    """Receive the event of every inference after it has ended and is recorded. Implementations never block or raise.

    Called from any thread: the worker, the thread of the record sink, or the event loop.
    """

    def observe(self, event: InferenceEvent, /) -> None: ...


class RecordSink(Protocol):
    """Record inferences before their answers are sent."""

    @property
    def unavailable_reason(self) -> str:
        """Return why nothing can be recorded now, so that every request would fail; empty if recording works."""
        ...

    def record(self, event: InferenceEvent, /) -> "Future[None] | None":
        """Submit one inference or refusal for recording, without blocking.

        Returns:
            A future that completes when it is recorded, or fails with the `InferenceError` that the client gets instead
            of its answer. None if the answer need not wait.
        """
        ...


class OutputAnnotator(Protocol):
    """Add output parameters to a response. Called in the worker, before the response is encoded; does not raise."""

    def __call__(
        self, info: RequestInfo, result: InferenceResult, model_name: str, /
    ) -> Sequence[Mapping[str, object]]:
        """Return parameters for each output of `result`, or nothing. Set headers in `info.response_headers`."""
        ...
