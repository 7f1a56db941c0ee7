"""Prometheus metrics of inferences, and of the current state of the server."""

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial

import msgspec
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from app.core.engine.engine import Engine
from app.core.engine.models.registry import ModelState
from app.core.engine.request_context import RequestContext

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_MAX_SERIES = 1024
_EXPLANATION_SECONDS = (0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0)


class Metrics:
    """Count inferences, their durations and invalid metadata. Explanations have their own metrics.

    Each server has its own registry. Clients may invent names: `owner` returns "" for those that no model has.
    """

    def __init__(self, registry: CollectorRegistry, owner: Callable[[str], str]) -> None:
        self._owner = owner
        counter, histogram = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        labels = ("protocol", "model", "version", "outcome")
        # To find the series of a request takes longer than to count it.
        cached = lru_cache(maxsize=_MAX_SERIES)
        inferences = counter("charioteer_inferences", "Finished inference requests.", labels)
        inference_seconds = histogram(
            "charioteer_inference_seconds",
            "Seconds from the arrival of a request's body to its answer, including the wait.",
            labels,
            buckets=_SECONDS,
        )
        self._inferences = cached(inferences.labels), cached(inference_seconds.labels)
        explanations = counter("charioteer_explanations", "Finished explanation requests.", labels)
        explanation_seconds = histogram(
            "charioteer_explanation_seconds",
            "Seconds from the arrival of a request's body to its explained answer, including the wait.",
            labels,
            buckets=_EXPLANATION_SECONDS,
        )
        self._explanations = cached(explanations.labels), cached(explanation_seconds.labels)
        queue = histogram(
            "charioteer_queue_seconds", "Seconds that requests waited for a worker.", ("protocol",), buckets=_SECONDS
        )
        self._queue = cached(queue.labels)
        self._faults = counter(
            "charioteer_metadata_faults",
            "Parts of custom metadata that could not be read. The inferences were answered.",
            ("protocol", "model"),
        )

    def observe(self, context: RequestContext, /) -> None:
        protocol, version = context.protocol, context.model_version
        model = context.model_name if self._owner(context.model_name) else ""
        outcome = context.outcome.value if context.outcome else "ok"
        count, seconds = self._explanations if context.explanation else self._inferences
        count(protocol, model, version, outcome).inc(context.count)
        seconds(protocol, model, version, outcome).observe(context.total / 1e9)
        if not context.explanation:
            self._queue(protocol).observe(context.queue / 1e9)
        if faults := sum(len(metadata.faults) for metadata in context.metadata.of()):
            self._faults.labels(protocol, model).inc(faults)


class ModelUsage(msgspec.Struct, kw_only=True):
    """The use of a model, all versions together, since the start of the server.

    Attributes:
        requests: finished requests, errors included, explanations not.
        latency: mean latency of requests without an error in milliseconds; 0 without any.
    """

    requests: int = 0
    errors: int = 0
    latency: float = 0.0


def usage_of_models(registry: CollectorRegistry) -> Mapping[str, ModelUsage]:
    """Return the use of each model that had a request, by its name, as `Metrics` counted it in `registry`."""
    usage: dict[str, ModelUsage] = {}
    seconds = "charioteer_inference_seconds_sum"
    families = registry.restricted_registry(["charioteer_inferences_total", seconds]).collect()
    for sample in (sample for family in families for sample in family.samples):
        model = usage.setdefault(sample.labels["model"], ModelUsage())
        if sample.name == seconds:
            model.latency += sample.value * 1000 if sample.labels["outcome"] == "ok" else 0
        else:
            model.requests += round(sample.value)
            model.errors += 0 if sample.labels["outcome"] == "ok" else round(sample.value)
    for model in usage.values():
        model.latency /= max(model.requests - model.errors, 1)
    return usage


class StateMetrics(Collector):
    """Collect the readiness and load of the server, and the readiness of each enabled model, on every scrape."""

    def __init__(self, engine: Engine, registry: CollectorRegistry) -> None:
        self._engine = engine
        registry.register(self)

    def collect(self) -> Iterator[Metric]:
        engine = self._engine
        ready = 0 if engine.not_ready_reason else 1
        yield GaugeMetricFamily("charioteer_ready", "1 while load balancers may send requests, as /ready says.", ready)
        documentation = "1 while an enabled model can answer, 0 while it cannot."
        models = GaugeMetricFamily("charioteer_model_ready", documentation, labels=("model", "version"))
        for model in engine.registry.registrations:
            if model.enabled:
                models.add_metric([model.source.name, model.source.version], int(model.state is ModelState.READY))
        yield models
        yield GaugeMetricFamily(
            "charioteer_requests_in_flight", "Requests that run or wait.", engine.admission.in_flight
        )
        yield GaugeMetricFamily(
            "charioteer_requests_waiting", "Requests that wait for a worker.", engine.admission.waiting
        )
