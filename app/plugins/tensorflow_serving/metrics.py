"""Metrics of this protocol's requests over REST and gRPC, with the real server's names and labels.

The names begin with a colon, which Prometheus allows (tensorflow/serving, `servables/tensorflow/util.cc`).
"""

from collections.abc import Callable

import grpc
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from app.core.engine.request_context import RequestContext
from app.core.protocols.status import grpc_status
from app.plugins.tensorflow_serving.signatures import UnknownSignatureError
from app.plugins.tensorflow_serving.targets import OK
from tasks.inference.error import InferenceError

TENSORFLOW_SERVING = "tensorflow-serving"
TENSORFLOW_SERVING_GRPC = "tensorflow-serving-grpc"

_REST = "REST"
_ENTRYPOINTS = {TENSORFLOW_SERVING: _REST, TENSORFLOW_SERVING_GRPC: "GRPC"}
_MICROSECONDS = tuple(10 * 1.8**power for power in range(33))
_PREFIX = ":tensorflow:serving:"
_REQUEST_COUNT = f"{_PREFIX}request_count"


class RequestMetrics:
    """Counts requests, and measures the latency of successful ones.

    Args:
        is_known_model: returns whether a model exists. Other names share an empty label, because clients can send any
            name.
    """

    def __init__(self, is_known_model: Callable[[str], bool]) -> None:
        self._is_known_model = is_known_model
        self._registry = CollectorRegistry()
        self._requests = Counter(
            _REQUEST_COUNT, "The total number of requests.", ("model_name", "status"), registry=self._registry
        )
        self._latency = Histogram(
            f"{_PREFIX}request_latency",
            "Wall time of a request that was answered, in microseconds.",
            ("model_name", "API", "entrypoint"),
            registry=self._registry,
            buckets=_MICROSECONDS,
        )
        self._runtime = Histogram(
            f"{_PREFIX}runtime_latency",
            "Wall time of the model for a request, decoding of images included, in microseconds.",
            ("model_name", "API", "runtime"),
            registry=self._registry,
            buckets=_MICROSECONDS,
        )

    def observe(self, context: RequestContext, /) -> None:
        """Record an inference, unless it belongs to another protocol."""
        entrypoint, api = _ENTRYPOINTS.get(context.protocol), context.operation
        if entrypoint is None:
            return
        code = OK if context.outcome is None else grpc_status(context.outcome).name
        if entrypoint != _REST and context.failure is not None:
            code = grpc_code(context.failure).name
        self._record(context.model_name, api, code, context.total, entrypoint, context.count)
        registration = context.registration
        if code == OK and registration is not None and registration.servable is not None:
            nanoseconds = context.decode_ns + context.model_ns + context.postprocess_ns
            if entrypoint == _REST:
                api = api.capitalize()
            platform = registration.servable.description.platform
            self._runtime.labels(context.model_name, api, platform).observe(nanoseconds / 1000)

    def record_other(self, model: str, error: InferenceError | None, nanoseconds: int) -> None:
        """Record a REST request that is no inference: for the state or the metadata of a model, or malformed."""
        self._record(model, "", OK if error is None else grpc_status(error.kind).name, nanoseconds, _REST, 1)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry).replace(f"{_REQUEST_COUNT}_total".encode(), _REQUEST_COUNT.encode())

    def _record(self, model: str, api: str, code: str, nanoseconds: int, entrypoint: str, count: int) -> None:
        name = model if self._is_known_model(model) else ""
        self._requests.labels(name, code).inc(count)
        if code == OK:
            self._latency.labels(name, api, entrypoint).observe(nanoseconds / 1000)


def grpc_code(error: InferenceError) -> grpc.StatusCode:
    """Return the gRPC status of an error."""
    if isinstance(error, UnknownSignatureError):
        return grpc.StatusCode.FAILED_PRECONDITION
    return grpc_status(error.kind)
