"""What metrics say of the server's state is what it says elsewhere."""

import asyncio

from prometheus_client import CollectorRegistry

from app.observers.state import StateMetrics
from tests.support.grpc_server import built
from tests.support.served import ECHOES, echo


def test_readiness_is_that_of_the_server_and_of_each_model_at_the_moment() -> None:
    engine, registry = built(("echo-fp32", "echo-int64"), loaded=False), CollectorRegistry()
    StateMetrics(engine, registry)

    def told(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, labels)

    def model(name: str) -> float | None:
        return told("charioteer_model_ready", model=name, version="1")

    assert (told("charioteer_ready"), model("echo-fp32"), model("echo-int64")) == (0, 0, 0)
    first, second = engine.registry.registrations
    for each in (first, second):
        engine.registry.load(each.source, lambda source: echo(ECHOES[source.name]))
    assert (told("charioteer_ready"), model("echo-fp32"), model("echo-int64")) == (1, 1, 1)
    asyncio.run(engine.repository.unload("echo-int64"))
    assert (told("charioteer_ready"), model("echo-int64")) == (1, None), "nobody waits for what was unloaded on purpose"
    engine.online = False
    assert (told("charioteer_ready"), model("echo-fp32")) == (0, 1)
    engine.online = True
    engine.retire()
    assert told("charioteer_ready") == 0
    assert (told("charioteer_requests_in_flight"), told("charioteer_requests_waiting")) == (0, 0)
