"""Send bodies that violate the schema to every operation with a body.

`tests.fuzz` mutates paths, queries and headers of the other operations.
"""

from itertools import cycle
from typing import Any

import pytest
import schemathesis
import schemathesis.checks
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode

from tests.support.fake_app import build_app

LIBRARY: Any = schemathesis.checks
CHECKS = [LIBRARY.content_type_conformance, LIBRARY.not_a_server_error, LIBRARY.status_code_conformance]
# A generator would not guess these names, and every response would be 404.
TARGETS = cycle(["m-classifier", "m-detector", "classifier", "teller", "continuer", "missing"])


def negative_schema(protocol: str) -> Any:
    """Return the schema of an application that generates invalid data."""
    app = build_app(("classifier", "detector", "teller", "continuer"), protocol)
    schema: Any = schemathesis.openapi.from_asgi("/schema", app)
    schema.config.generation.update(modes=[GenerationMode.NEGATIVE])
    return schema


def takes_a_body(context: Any) -> bool:
    return "requestBody" in context.operation.definition.raw


KSERVE, LEAN = negative_schema("chariot-v2-kserve"), negative_schema("chariot-v2")
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
@KSERVE.include(takes_a_body).parametrize()
@FEW_EXAMPLES
def test_invalid_requests_conform_to_schema(case: Any) -> None:
    check_response(case)


@pytest.mark.slow
@LEAN.include(path="/infer").parametrize()
@FEW_EXAMPLES
def test_invalid_chariot_v2_requests_conform_to_schema(case: Any) -> None:
    check_response(case)
