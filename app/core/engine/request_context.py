"""The context of one request: everything that is known about it, from its arrival to its report."""

import os
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future

from msgspec import field

from app.core.engine.cancellation import CancellationToken
from app.core.engine.models.registry import Registration
from metadata.request import METADATA_PARAMETER, NO_METADATA, RequestMetadata, metadata_of
from tasks.inference.error import ErrorKind, InferenceError, truncate
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResult

_MAX_MODEL_NAME = 255
"""Characters of a model's name in logs, traces and records; served models have no longer names."""

# Seeded once: `os.urandom` for every request costs a system call and releases the GIL. The ids are not secrets.
_RANDOM = random.Random()  # noqa: S311
os.register_at_fork(after_in_child=_RANDOM.seed)


def request_id() -> str:
    """Return a random UUID (RFC 9562, version 4)."""
    digits = f"{_RANDOM.getrandbits(128):032x}"
    variant = "89ab"[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


class RequestContext(CancellationToken, kw_only=True, eq=False):
    """One request and its cancellation token. It is filled on the way, and complete when observers receive it.

    Attributes:
        protocol: the name of the wire protocol.
        request_id: the value of X-Request-ID, received or generated.
        base_id: the value of Chariot-Inference-Base-ID, if the platform sent it.
        trace: the client's trace context: the W3C headers `traceparent` and `tracestate` that were received.
        timeout: the client's timeout in seconds, None if it sent none, NaN if it sent an invalid one.
        disconnected: completes when the client has disconnected; None if a disconnect is reported in another way.
        client: the name of the client's API key, or ``jwt:`` and the subject of its token; empty without
            authentication.
        address: the address of the peer, which may be a shared proxy; empty if it is unknown.
        response_headers: headers that annotators add to the response (gRPC: trailing metadata), by name.
        similarities: the similarity of each image to those that its model knows, None for one that was not measured;
            empty without an annotator that measures it.
        model_name: the requested model, empty if the request did not name one.
        explanation: whether the client requested explanations, which take hundreds of times as long.
        trial: whether the client marks it as a trial, which records and drift keep apart from other requests.
        max_queue_seconds: seconds that it may wait for a worker; None for no limit.
        arrived: arrival of the complete body on the clock of `time.perf_counter_ns`, in nanoseconds.
        timestamp: arrival in nanoseconds since 1970 (UTC).
        work_started: start of the work on it, on the same clock as `arrived`; 0 before that.
        request: the decoded request, None if it could not be decoded.
        registration: the model that answers, None if none was found.
        result: the result so far, None without an answer; partial if a stream was interrupted.
        explanation_samples: masked copies of the images that the model processed for explanations.
        failure: why the request failed.
        recorded: completes when the request is recorded; None without recording.
        id: unique id of the finished request: 32 hexadecimal digits, 12 of the milliseconds since 1970, for ordered
            storage, the rest random.
        model_version: the version that answered, empty if none did.
        task_type: of the model that answered, empty if none did.
        outcome: None for success, otherwise the kind of error.
        error: the error message that the client got, empty for success.
        batch_size: images, or texts, that the model processed.
        decode_ns: nanoseconds for reading images and parameters.
        model_ns: nanoseconds of the calls of the model.
        postprocess_ns: nanoseconds for thresholds, filters and order.
        queue: nanoseconds that the request waited for a worker.
        total: nanoseconds from arrival to the end, including the wait. For observers it includes the time of recording.
        count: number of requests in this context: rejections before a body is read are reported together.
    """

    protocol: str
    request_id: str
    base_id: str | None = None
    trace: Mapping[str, str] = field(default_factory=dict[str, str])
    timeout: float | None = None
    disconnected: Callable[[], Awaitable[object]] | None = None
    client: str = ""
    address: str = ""
    response_headers: dict[str, str] = field(default_factory=dict[str, str])
    similarities: Sequence[float | None] = ()
    model_name: str = ""
    explanation: bool = False
    trial: bool = False
    max_queue_seconds: float | None = None
    arrived: int = field(default_factory=time.perf_counter_ns)
    timestamp: int = field(default_factory=time.time_ns)
    work_started: int = 0
    request: InferenceRequest | None = None
    registration: Registration | None = None
    result: InferenceResult | None = None
    explanation_samples: int = 0
    failure: InferenceError | None = None
    recorded: "Future[None] | None" = None
    id: str = ""
    model_version: str = ""
    task_type: str = ""
    outcome: ErrorKind | None = None
    error: str = ""
    batch_size: int = 0
    decode_ns: int = 0
    model_ns: int = 0
    postprocess_ns: int = 0
    queue: int = 0
    total: int = 0
    count: int = 1
    _metadata: RequestMetadata = NO_METADATA

    @property
    def metadata(self) -> RequestMetadata:
        """Return the metadata of the inputs, which is read when its values are."""
        if self._metadata is NO_METADATA and self.request is not None:
            self._metadata = metadata_of(self.request)
        return self._metadata

    def drop_payload(self) -> bool:
        """Drop the inputs and the predictions, and keep the metadata unread.

        Return False, and drop nothing, if the metadata is so long that the caller should have it read at once.
        """
        request = self.request
        if request is not None and (
            METADATA_PARAMETER in request.parameters
            or any(METADATA_PARAMETER in tensor.parameters for tensor in request.inputs)
        ):
            self._metadata = self.metadata
            if self._metadata.is_long:
                return False
        self.request = self.result = None
        return True

    def set_timeout(self, timeout: float) -> None:
        """Set the deadline to `timeout` seconds after arrival, unless it is earlier already.

        Raise DEADLINE_EXCEEDED if the deadline has passed.
        """
        remaining = timeout - (time.perf_counter_ns() - self.arrived) / 1e9
        self.shorten(time.monotonic() + remaining)
        if (error := self.cancellation) is not None:
            raise error

    def finish(self) -> None:
        """Set the fields that follow from the others when the request has ended."""
        self.id = f"{time.time_ns() // 1_000_000:012x}{_RANDOM.getrandbits(80):020x}"
        self.total = time.perf_counter_ns() - self.arrived
        self.queue = (self.work_started or self.arrived) - self.arrived
        if (failure := self.failure) is not None:
            self.outcome, self.error = failure.kind, str(failure)
        if (result := self.result) is not None:
            self.batch_size = result.batch_size
            self.decode_ns, self.model_ns = result.decode_ns, result.model_ns
            self.postprocess_ns = result.postprocess_ns
        if (registration := self.registration) is not None:
            self.model_version = registration.source.version
            if registration.servable is not None:
                self.task_type = str(registration.servable.description.task_type)
        if (request := self.request) is not None:
            self.model_name = request.model_name
        if len(self.model_name) > _MAX_MODEL_NAME:
            self.model_name = truncate(self.model_name, _MAX_MODEL_NAME)
