"""The engine applies every limit that an operator sets."""

import dataclasses

import msgspec
import pytest

from app.core.assembly.discovery import discover
from app.core.assembly.service import Service
from app.core.engine.scheduling.admission import QueueLimits
from app.core.settings.server import DEMO_MODELS, LimitSettings
from tasks.inference.limits import Limits
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
    service = Service(settings, lambda: discover(DEMO_MODELS / "detector"))
    limits = msgspec.to_builtins(msgspec.structs.replace(service.engine.limits, downscale=None))
    assert {name: limits[name] for name in NAMES if name in LIMITS} == {
        name: value for name, value in values.items() if name in LIMITS
    }
    assert {*NAMES} <= {*LIMITS, *BOUNDS}
