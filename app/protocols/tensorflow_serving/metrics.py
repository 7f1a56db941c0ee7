"""Metrics of this protocol's requests over REST and gRPC, with the real server's names and labels.

The names begin with a colon, which Prometheus allows (tensorflow/serving, `servables/tensorflow/util.cc`).
"""

from collections.abc import Callable
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

__all__ = ("Entrypoint", "RequestMetrics")

Entrypoint = Literal["REST", "GRPC"]

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

    def record_request(self, model: str, api: str, code: str, nanoseconds: int, entrypoint: Entrypoint) -> None:
        """Record a request that ended with `code`.

        Args:
            model: the requested model.
            api: what was requested; empty for the state and the metadata of a model.
            code: the name of the status.
            nanoseconds: from the request to the response.
            entrypoint: where the request came in.
        """
        name = model if self._is_known_model(model) else ""
        self._requests.labels(name, code).inc()
        if code == "OK":
            self._latency.labels(name, api, entrypoint).observe(nanoseconds / 1000)

    def record_model_run(self, model: str, api: str, platform: str, nanoseconds: int) -> None:
        """Record a successful call of a model."""
        self._runtime.labels(model, api, platform).observe(nanoseconds / 1000)

    def render(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self._registry).replace(f"{_REQUEST_COUNT}_total".encode(), _REQUEST_COUNT.encode())
