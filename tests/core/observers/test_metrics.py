"""Metrics of inferences; clients cannot add series."""

import msgspec
from prometheus_client import CollectorRegistry

from app.core.observers.metrics import Metrics
from tasks.inference.error import ErrorKind
from tests.support.data.chariot import Client
from tests.support.data.inference_events import event


def test_unknown_model_names_are_counted_together() -> None:
    registry = CollectorRegistry()
    metrics = Metrics(registry, lambda name: name if name == "m" else "")
    for index in range(50):
        metrics.observe(msgspec.structs.replace(event(ErrorKind.MODEL_NOT_FOUND), model_name=f"made up {index}"))
    metrics.observe(event())
    counts = {
        (sample.labels["model"], sample.value)
        for family in registry.collect()
        for sample in family.samples
        if sample.name == "charioteer_inferences_total"
    }
    assert counts == {("", 50), ("m", 1)}


def test_requests_to_unknown_models_add_no_series(client: Client) -> None:
    def series() -> int:
        return len(client.get("/metrics").text.splitlines())

    for path in ("/v1/models/{}:predict", "/v2/models/{}/infer", "/v2/models/m-{}/infer", "/v1/models/{}:explain"):
        assert client.post(path.format("missing-0"), content=b"{}").status_code == 404
    before = series()
    for index in range(1, 20):
        for path in ("/v1/models/{}:predict", "/v2/models/{}/infer", "/v2/models/m-{}/infer", "/v1/models/{}:explain"):
            client.post(path.format(f"missing-{index}"), content=b"{")
    assert series() == before
