"""Our server conforms to every protocol that it serves; each deliberate fault fails its own check and no other."""

from importlib import import_module
from pathlib import Path

import pytest

from app.plugins.conformance.check import CheckVerdict, Level, Protocol
from app.plugins.conformance.protocols import PROTOCOLS
from tests.plugins.conformance.deliberate_faults import items
from tests.plugins.conformance.engines import Engines, Fault, check_with_fault, failed_checks

_FILES = sorted(Path(__file__).with_name("deliberate_faults").glob("*.py"))
MODULES = [import_module(f"tests.plugins.conformance.deliberate_faults.{file.stem}") for file in _FILES]
FAULTS: dict[str, Fault] = {
    f"{fault.protocol}: {name}": fault for module in MODULES for name, fault in getattr(module, "FAULTS", {}).items()
}

MODELS = {
    "chariot-v2-kserve": ("classifier", "detector", "oriented-detector", "segmenter", "vlm"),
    "chariot-v2": ("classifier", "detector", "oriented-detector", "segmenter", "vlm"),
    "v2": ("classifier", "detector", "segmenter", "vlm", "half_plus_two", "greeter"),
    "v2-grpc": ("classifier", "oriented-detector", "vlm", "half_plus_two", "greeter"),
    "v1": ("classifier", "detector", "vlm", "half_plus_two"),
}
"""The kinds of models that each protocol supports."""


def test_every_protocol_is_covered() -> None:
    assert set(MODELS) == {protocol.name for protocol in PROTOCOLS}


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "model"), [(p, model) for p, models in MODELS.items() for model in models])
def test_our_server_conforms(engines: Engines, protocol: str, model: str) -> None:
    report = check_with_fault(engines, Fault(protocol=protocol, model=model))
    assert failed_checks(report) == {}
    assert report.count(CheckVerdict.NOT_TESTED, Level.MUST) <= 3


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_deliberate_fault_fails_only_its_check(engines: Engines, name: str) -> None:
    fault = FAULTS[name]
    failures = failed_checks(check_with_fault(engines, fault))
    assert list(failures) == fault.checks.split(), failures


@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_every_check_has_a_deliberate_fault(protocol: Protocol) -> None:
    covered = {fault.checks.split()[0] for fault in FAULTS.values() if fault.protocol == protocol.name}
    # Chariot's protocols share the checks of items.
    shared = {fault.checks.replace("CV2-", "CV2K-") for fault in items.FAULTS.values()}
    assert [check.id for check in protocol.checks if check.id not in covered | shared] == []
