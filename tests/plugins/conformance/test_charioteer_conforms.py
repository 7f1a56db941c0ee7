"""Our server conforms to every protocol that it serves, with every kind of model that the protocol supports."""

from collections.abc import Iterator

import httpx
import pytest

from app.plugins.conformance.check import Level, Verdict
from app.plugins.conformance.protocols import PROTOCOLS
from tests.plugins.conformance.engines import (
    Engines,
    Fault,
    FaultyCaller,
    check_engine,
    check_with_fault,
    failed_checks,
    open_engines,
)

MODELS = {
    "chariot-v2-kserve": ("classifier", "detector", "oriented-detector", "segmenter", "vlm"),
    "chariot-v2": ("classifier", "detector", "oriented-detector", "segmenter", "vlm"),
    "v2": ("classifier", "detector", "segmenter", "vlm", "half_plus_two", "greeter"),
    "v2-grpc": ("classifier", "oriented-detector", "vlm", "half_plus_two", "greeter"),
    "v1": ("classifier", "detector", "vlm", "half_plus_two"),
    "openai": ("vlm", "embedder"),
    "label-studio": ("vlm",),
    "tensorflow-serving": ("classifier", "detector", "vlm", "half_plus_two", "greeter"),
    "tensorflow-serving-grpc": ("classifier", "detector", "vlm", "half_plus_two", "greeter"),
    "grps": ("classifier", "segmenter", "vlm", "half_plus_two", "greeter"),
    "grps-grpc": ("classifier", "segmenter", "vlm", "half_plus_two", "greeter"),
}


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with open_engines() as engines:
        yield engines


def test_every_protocol_is_covered() -> None:
    assert set(MODELS) == {protocol.name for protocol in PROTOCOLS}


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "model"), [(p, model) for p, models in MODELS.items() for model in models])
def test_our_server_conforms(engines: Engines, protocol: str, model: str) -> None:
    report = check_with_fault(engines, Fault(protocol=protocol, model=model, check=""))
    assert failed_checks(report) == {}
    assert report.count(Verdict.NOT_TESTED, Level.MUST) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("values", [{"float_val": [1, 5]}, {"tensor_content": "AACAPwAAoEA="}, {}])
def test_given_predict_request_is_sent_instead_of_a_generated_one(engines: Engines, values: dict[str, object]) -> None:
    fault = Fault(protocol="tensorflow-serving-grpc", model="half_plus_two", check="")
    tensor = {"dtype": "DT_FLOAT", "tensor_shape": {"dim": [{"size": "2"}]}, **values}
    with httpx.Client() as client:
        caller = FaultyCaller(engines, fault)
        request = {"inputs": {"x": tensor}}
        report = check_engine(client, fault.protocol, caller=caller, model=fault.model, request=request)
    assert failed_checks(report) == {}
    assert report.count(Verdict.NOT_TESTED) == 0
