"""A service in this process: its limits, its models, and what it counts."""

import dataclasses

import msgspec
import pytest
from litestar.testing import TestClient

from app.core.assembly.discovery import discover
from app.core.assembly.service import Service
from app.core.engine.scheduling.admission import QueueLimits
from app.core.settings.server import DEMO_MODELS, LimitSettings
from tasks.inference.limits import Limits
from tests.support.polling import wait_until
from tests.support.servers.settings import settings_of_main_port

NAMES = [field.name for field in dataclasses.fields(LimitSettings)]
LIMITS, BOUNDS = (tuple(field.name for field in msgspec.structs.fields(kind)) for kind in (Limits, QueueLimits))


@pytest.mark.parametrize("name", NAMES)
def test_limit_has_the_same_default_everywhere(name: str) -> None:
    default = getattr(LimitSettings(), name)
    if name in LIMITS:
        assert getattr(Limits(), name) == default
    elif name == "request_timeout":
        assert QueueLimits().request_timeout is None
    else:
        assert getattr(QueueLimits(), name) == default


def test_engine_uses_the_configured_limits() -> None:
    values = {name: name == "allow_avif_jpeg2000" or number for number, name in enumerate(NAMES, 11)}
    settings = settings_of_main_port(**values)
    service = Service(settings, pytest.fail, found=discover(DEMO_MODELS / "detector"))
    limits = msgspec.to_builtins(msgspec.structs.replace(service.engine.limits, downscale=None))
    assert {name: limits[name] for name in NAMES if name in LIMITS} == {
        name: value for name, value in values.items() if name in LIMITS
    }
    assert {*NAMES} <= {*LIMITS, *BOUNDS}


def test_service_loads_its_models_and_counts_their_answers_until_it_stops() -> None:
    service = Service(settings_of_main_port(), lambda: discover(DEMO_MODELS / "half_plus_two"))
    tensor = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}
    with TestClient(service.app) as client:
        wait_until(lambda: client.get("/ready").status_code == 200)
        response = client.post("/v2/models/half_plus_two/infer", json={"inputs": [tensor]})
        assert response.json()["outputs"][0]["data"] == [2.5]
        assert 'charioteer_inferences_total{model="half_plus_two"' in client.get("/metrics").text
    assert not service.loading.busy
    assert not service.engine.busy
