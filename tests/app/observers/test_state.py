"""Metrics of the server's state agree with its readiness."""

import asyncio

from prometheus_client import CollectorRegistry

from app.observers.state import StateMetrics
from tests.support.grpc_server import built
from tests.support.served import ECHOES, echo


def test_readiness_metrics_follow_server_and_models() -> None:
    engine, registry = built(("echo-fp32", "echo-int64"), loaded=False), CollectorRegistry()
    StateMetrics(engine, registry)

    def metric(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    def model_ready(name: str) -> float | None:
        return metric("charioteer_model_ready", model=name, version="1")

    assert (metric("charioteer_ready"), model_ready("echo-fp32"), model_ready("echo-int64")) == (0, 0, 0)
    first, second = engine.registry.registrations
    for registration in (first, second):
        engine.registry.load(registration.source, lambda source: echo(ECHOES[source.name]))
    assert (metric("charioteer_ready"), model_ready("echo-fp32"), model_ready("echo-int64")) == (1, 1, 1)
    asyncio.run(engine.repository.unload("echo-int64"))
    assert (metric("charioteer_ready"), model_ready("echo-int64")) == (1, None), (
        "readiness ignores a model unloaded on purpose"
    )
    engine.online = False
    assert (metric("charioteer_ready"), model_ready("echo-fp32")) == (0, 1)
    engine.online = True
    engine.retire()
    assert metric("charioteer_ready") == 0
    assert (metric("charioteer_requests_in_flight"), metric("charioteer_requests_waiting")) == (0, 0)
