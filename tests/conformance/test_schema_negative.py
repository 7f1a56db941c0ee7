"""Send bodies that violate the schema to every operation with a body."""

from itertools import cycle
from typing import Any

import pytest
import schemathesis
import schemathesis.checks
from hypothesis import HealthCheck, given, settings, strategies
from schemathesis import GenerationMode

from tests.support.openapi import operations_of
from tests.support.servers.fake_app import build_app

LIBRARY: Any = schemathesis.checks
CHECKS = [LIBRARY.content_type_conformance, LIBRARY.not_a_server_error, LIBRARY.status_code_conformance]
# A generator would not guess these names, and every response would be 404.
TARGETS = cycle(["m-classifier", "m-detector", "classifier", "teller", "continuer", "missing"])


def schema_of(protocol: str) -> Any:
    """Return the schema of an application."""
    app = build_app(("classifier", "detector", "teller", "continuer"), protocol)
    return schemathesis.openapi.from_asgi("/schema", app)


def takes_a_body(context: Any) -> bool:
    return "requestBody" in context.operation.definition.raw


KSERVE, LEAN = schema_of("chariot-v2-kserve"), schema_of("chariot-v2")
FEW_EXAMPLES = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)


def check_response(case: Any) -> None:
    if "target" in case.path_parameters and isinstance(case.path_parameters["target"], str):
        case.path_parameters["target"] = next(TARGETS)
    response = case.call()
    # 501 is allowed: KServe returns it for a model without an explainer.
    if response.status_code != 501:
        case.validate_response(response, checks=CHECKS)


@pytest.mark.slow
@pytest.mark.parametrize(
    "operation", [*operations_of(KSERVE.include(takes_a_body)), *operations_of(LEAN.include(path="/infer"))]
)
@FEW_EXAMPLES
@given(data=strategies.data())
def test_invalid_requests_conform_to_schema(operation: Any, data: strategies.DataObject) -> None:
    check_response(data.draw(operation.as_strategy(GenerationMode.NEGATIVE)))
