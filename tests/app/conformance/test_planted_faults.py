"""Every fault that is planted in an engine is named by its clause, and nothing else is; every clause has one."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from app.conformance.protocols import PROTOCOLS, Protocol
from tests.app.conformance.engines import Engines, Fault, failed, held_spoilt
from tests.app.conformance.planted import (
    chariot,
    chariot_kserve,
    grps,
    grps_grpc,
    kserve_v1,
    open_inference,
    open_inference_grpc,
    tensorflow_serving,
)

MODULES = (
    chariot_kserve,
    chariot,
    open_inference,
    open_inference_grpc,
    kserve_v1,
    tensorflow_serving,
    grps,
    grps_grpc,
)

FAULTS: dict[str, Fault] = {
    f"{fault.protocol}: {name}": fault for module in MODULES for name, fault in module.FAULTS.items()
}


@pytest.fixture(scope="module")
def engines() -> Iterator[Engines]:
    with ExitStack() as stack:
        yield Engines(stack)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_named_and_nothing_else(engines: Engines, name: str) -> None:
    fault = FAULTS[name]
    named = failed(held_spoilt(engines, fault))
    assert list(named) == [fault.clause, *fault.also], named


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda each: each.name)
def test_every_clause_has_a_planted_fault(protocol: Protocol) -> None:
    named = {fault.clause for fault in FAULTS.values() if fault.protocol == protocol.name}
    assert [clause.id for clause in protocol.clauses if clause.id not in named] == []
