"""Ours keeps every protocol that it speaks, with every kind of model that can be asked by it."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from app.conformance.clause import Level, Verdict
from app.conformance.protocols import PROTOCOLS
from tests.app.conformance.engines import Engines, Fault, failed, held_spoilt

OURS = {
    "chariot-v2-kserve": ("classifier", "detector", "oriented-detector", "segmenter", "vlm"),
    "chariot-v2": ("classifier", "detector", "oriented-detector", "segmenter", "vlm"),
    "v2": ("classifier", "detector", "segmenter", "vlm", "half_plus_two", "greeter"),
    "v2-grpc": ("classifier", "oriented-detector", "vlm", "half_plus_two", "greeter"),
    "v1": ("classifier", "detector", "vlm", "half_plus_two"),
    "tensorflow-serving": ("classifier", "detector", "vlm", "half_plus_two", "greeter"),
    "grps": ("classifier", "segmenter", "vlm", "half_plus_two", "greeter"),
    "grps-grpc": ("classifier", "segmenter", "vlm", "half_plus_two", "greeter"),
}


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with ExitStack() as stack:
        yield Engines(stack)


def test_every_protocol_is_tried() -> None:
    assert set(OURS) == {each.name for each in PROTOCOLS}


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "model"), [(p, model) for p, models in OURS.items() for model in models])
def test_ours_conforms(engines: Engines, protocol: str, model: str) -> None:
    report = held_spoilt(engines, Fault(protocol=protocol, model=model, clause=""))
    assert failed(report) == {}
    assert report.counted(Verdict.NOT_TESTED, Level.MUST) <= 3
