"""What /schema does not allow never breaks anything: over every operation that takes a body.

The others have nothing to be wrong; `fuzz` mutates their paths, queries and headers.
"""

from itertools import cycle
from typing import Any

import pytest
import schemathesis
import schemathesis.checks
from hypothesis import HealthCheck, settings
from schemathesis import GenerationMode

from tests.support.application import build_app

LIBRARY: Any = schemathesis.checks
CHECKS = [LIBRARY.content_type_conformance, LIBRARY.not_a_server_error, LIBRARY.status_code_conformance]
# Names that a generator would not think of, so that more than 404 is seen.
TARGETS = cycle(["m-classifier", "m-detector", "classifier", "teller", "continuer", "nobody"])


def negative(protocol: str) -> Any:
    """The description of an application, for data that it does not allow."""
    app = build_app(("classifier", "detector", "teller", "continuer"), protocol)
    schema: Any = schemathesis.openapi.from_asgi("/schema", app)
    schema.config.generation.update(modes=[GenerationMode.NEGATIVE])
    return schema


def takes_a_body(context: Any) -> bool:
    return "requestBody" in context.operation.definition.raw


KSERVE, LEAN = negative("chariot-v2-kserve"), negative("chariot-v2")
FEW = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)


def ask(case: Any) -> None:
    if "target" in case.path_parameters and isinstance(case.path_parameters["target"], str):
        case.path_parameters["target"] = next(TARGETS)
    response = case.call()
    # What is not implemented is no fault of the server's: KServe says so of a model that has no explainer.
    if response.status_code != 501:
        case.validate_response(response, checks=CHECKS)


@pytest.mark.slow
@KSERVE.include(takes_a_body).parametrize()
@FEW
def test_every_operation_bears_what_it_does_not_allow(case: Any) -> None:
    ask(case)


@pytest.mark.slow
@LEAN.include(path="/infer").parametrize()
@FEW
def test_chariot_v2_does_too(case: Any) -> None:
    ask(case)
