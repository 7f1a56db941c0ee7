"""Metrics of this protocol's requests, under the names and labels of the real server.

Its names begin with a colon, which Prometheus allows (tensorflow/serving, `servables/tensorflow/util.cc`).
"""

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from app.protocols.tensorflow_serving.paths import Verb

__all__ = ("RequestMetrics",)

_MICROSECONDS = tuple(10 * 1.8**power for power in range(33))
_PREFIX = ":tensorflow:serving:"
_COUNTED = f"{_PREFIX}request_count"


class RequestMetrics:
    """Counts requests, and how long the answered ones took.

    Args:
        known: whether a model has a name; others are counted under the empty name, because senders make them up.
    """

    def __init__(self, known: Callable[[str], bool]) -> None:
        self._known = known
        self._registry = CollectorRegistry()
        self._requests = Counter(
            _COUNTED, "The total number of requests.", ("model_name", "status"), registry=self._registry
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

    def requested(self, model: str, verb: Verb | None, code: str, nanoseconds: int) -> None:
        """A request ended with `code`."""
        name = model if self._known(model) else ""
        self._requests.labels(name, code).inc()
        if code == "OK":
            api = verb if verb in ("predict", "classify", "regress") else ""
            self._latency.labels(name, api, "REST").observe(nanoseconds / 1000)

    def ran(self, model: str, verb: Verb, platform: str, nanoseconds: int) -> None:
        """A model answered."""
        self._runtime.labels(model, verb.capitalize(), platform).observe(nanoseconds / 1000)

    def page(self) -> bytes:
        """All of it, in Prometheus' text format."""
        return generate_latest(self._registry).replace(f"{_COUNTED}_total".encode(), _COUNTED.encode())
