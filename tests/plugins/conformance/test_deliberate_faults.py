"""Each deliberate fault fails its own check and no other, and every check has a deliberate fault."""

from collections.abc import Iterator

import pytest

from app.plugins.conformance.protocol import Protocol
from app.plugins.conformance.protocols import PROTOCOLS
from tests.plugins.conformance.deliberate_faults import (
    chariot,
    chariot_kserve,
    grps,
    grps_grpc,
    kserve_v1,
    label_studio,
    open_inference,
    open_inference_grpc,
    openai,
    tensorflow_serving,
    tensorflow_serving_grpc,
)
from tests.plugins.conformance.engines import Engines, Fault, check_with_fault, failed_checks, open_engines

MODULES = (
    chariot_kserve,
    chariot,
    open_inference,
    open_inference_grpc,
    kserve_v1,
    tensorflow_serving,
    tensorflow_serving_grpc,
    openai,
    label_studio,
    grps,
    grps_grpc,
)

FAULTS: dict[str, Fault] = {
    f"{fault.protocol}: {name}": fault for module in MODULES for name, fault in module.FAULTS.items()
}


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with open_engines() as engines:
        yield engines


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_deliberate_fault_fails_only_its_check(engines: Engines, name: str) -> None:
    fault = FAULTS[name]
    failures = failed_checks(check_with_fault(engines, fault))
    assert list(failures) == [fault.check, *fault.also_fails], failures


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_every_check_has_a_deliberate_fault(protocol: Protocol) -> None:
    covered = {fault.check for fault in FAULTS.values() if fault.protocol == protocol.name}
    assert [clause.id for clause in protocol.checks if clause.id not in covered] == []
