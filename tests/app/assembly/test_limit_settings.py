"""Every limit that an operator sets is one that the engine keeps."""

import dataclasses

import msgspec
import pytest

from app.assembly.discovery import discover
from app.assembly.models import FIXTURE_MODELS
from app.assembly.service import Service
from app.engine.admission import Bounds
from app.settings.limits import LimitSettings
from app.settings.server import ServerSettings
from tasks.exchange.limits import Limits

NAMES = [each.name for each in dataclasses.fields(LimitSettings)]
LIMITS, BOUNDS = (tuple(each.name for each in msgspec.structs.fields(kind)) for kind in (Limits, Bounds))


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_has_one_default_wherever_it_is_told(name: str) -> None:
    usual = getattr(LimitSettings(), name)
    if name in LIMITS:
        assert getattr(Limits(), name) == usual
    elif name == "request_timeout":
        assert Bounds().request_timeout is None
    else:
        assert getattr(Bounds(), name) == usual


def test_the_engine_keeps_what_is_set() -> None:
    given = {name: number for number, name in enumerate(NAMES, 11)}
    settings = ServerSettings(grpc=False, tensorflow_serving=False, **given)  # pyright: ignore[reportArgumentType]
    service = Service(settings, lambda: discover(FIXTURE_MODELS / "detector"))
    limits = msgspec.to_builtins(msgspec.structs.replace(service.engine.limits, detail=None))
    assert {name: limits[name] for name in NAMES if name in LIMITS} == {
        name: value for name, value in given.items() if name in LIMITS
    }
    assert {*NAMES} <= {*LIMITS, *BOUNDS}
