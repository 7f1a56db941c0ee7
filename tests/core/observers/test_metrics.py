"""Metrics of inferences, to which clients cannot add series, and of the server's state."""

import asyncio

from prometheus_client import CollectorRegistry

from app.core.observers.metrics import StateMetrics
from tests.support.data.chariot import Client
from tests.support.servers.apps import ECHO_MODELS, echo_model
from tests.support.servers.grpc_server import build_engine


def test_requests_to_unknown_models_add_no_series(client: Client) -> None:
    counts: set[int] = set()
    for index in range(20):
        for path in ("/v1/models/{}:predict", "/v2/models/{}/infer", "/v2/models/m-{}/infer", "/v1/models/{}:explain"):
            assert client.post(path.format(f"missing-{index}"), content=b"{}").status_code == 404
        counts.add(len(client.get("/metrics").text.splitlines()))
    assert len(counts) == 1


def test_readiness_metrics_follow_server_and_models() -> None:
    engine, registry = build_engine(("echo-fp32", "echo-int64"), loaded=False), CollectorRegistry()
    StateMetrics(engine, registry)

    def metric(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    def model_ready(name: str) -> float | None:
        return metric("charioteer_model_ready", model=name, version="1")

    assert (metric("charioteer_ready"), model_ready("echo-fp32"), model_ready("echo-int64")) == (0, 0, 0)
    first, second = engine.registry.registrations
    for registration in (first, second):
        engine.registry.load(registration.source, lambda source: echo_model(ECHO_MODELS[source.name]))
    assert (metric("charioteer_ready"), model_ready("echo-fp32"), model_ready("echo-int64")) == (1, 1, 1)
    asyncio.run(engine.repository.unload("echo-int64"))
    assert (metric("charioteer_ready"), model_ready("echo-int64")) == (1, None), (
        "readiness ignores a model unloaded on purpose"
    )
    engine.online = False
    assert (metric("charioteer_ready"), model_ready("echo-fp32")) == (0, 1)
    engine.online = True
    engine.mark_not_ready()
    assert metric("charioteer_ready") == 0
    assert (metric("charioteer_requests_in_flight"), metric("charioteer_requests_waiting")) == (0, 0)
