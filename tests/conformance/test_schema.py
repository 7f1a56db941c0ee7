"""Check that responses to valid and invalid requests conform to the OpenAPI document at /schema."""

from collections.abc import Iterator, Sequence
from itertools import cycle
from typing import Any

import pytest
import schemathesis
import schemathesis.checks
from hypothesis import HealthCheck, given, settings, strategies
from schemathesis import GenerationMode

from app.core.hooks import Parts
from app.plugins.recording.inferences import Inferences
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.stores.sqlite_store import SqliteStore
from app.plugins.recording.stores.store import parse_dsn
from tests.support.data.recorded_rows import ALL_IDS, ALL_ROWS
from tests.support.servers.apps import app_with_models, app_with_parts
from tests.support.servers.grpc_server import build_engine

MODELS = ("classifier", "detector", "teller", "continuer")


def schema_of(protocol: str) -> Any:
    return schemathesis.openapi.from_asgi("/schema", app_with_models(MODELS, protocol))


# Two servers of the first protocol, because the operations of one test unload models.
VALID, INVALID, LEAN = map(schema_of, ("chariot-v2-kserve", "chariot-v2-kserve", "chariot-v2"))
LIBRARY: Any = schemathesis.checks
CHECKS_OF_REJECTIONS = [
    LIBRARY.content_type_conformance,
    LIBRARY.not_a_server_error,
    LIBRARY.status_code_conformance,
]
CHECKS = [*CHECKS_OF_REJECTIONS, LIBRARY.response_schema_conformance]

# A generator would not guess these names, and every response would be 404.
TARGETS = cycle(["m-classifier", "m-detector", "m-missing", "classifier", "teller", "continuer", "missing"])
FEW_EXAMPLES = settings(
    max_examples=10,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large],
)


def operations_of(schema: Any) -> list[Any]:
    """Return a parameter for each operation; Schemathesis gives all of a test one id, which pytest-xdist drops."""
    operations = [result.ok() for result in schema.get_all_operations()]
    return [pytest.param(operation, id=operation.label) for operation in operations]


def test_document_is_valid() -> None:
    VALID.validate()


def takes_a_body(context: Any) -> bool:
    return "requestBody" in context.operation.definition.raw


def check_response(case: Any, checks: Sequence[Any]) -> None:
    if isinstance(case.path_parameters.get("target"), str):
        case.path_parameters["target"] = next(TARGETS)
    response = case.call()
    # 501 is allowed: KServe returns it for a model without an explainer.
    allowed = (LIBRARY.not_a_server_error,) if response.status_code == 501 else ()
    case.validate_response(response, checks=[check for check in checks if check not in allowed])


@pytest.mark.parametrize("operation", operations_of(VALID))
@FEW_EXAMPLES
@given(data=strategies.data())
def test_endpoint_responses_conform_to_schema(operation: Any, data: strategies.DataObject) -> None:
    check_response(data.draw(operation.as_strategy()), CHECKS)


@pytest.mark.parametrize(
    "operation", [*operations_of(INVALID.include(takes_a_body)), *operations_of(LEAN.include(path="/infer"))]
)
@FEW_EXAMPLES
@given(data=strategies.data())
def test_invalid_requests_conform_to_schema(operation: Any, data: strategies.DataObject) -> None:
    check_response(data.draw(operation.as_strategy(GenerationMode.NEGATIVE)), CHECKS_OF_REJECTIONS)


@pytest.fixture(scope="module")
def recordings_schema(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Return the schema of an application with recorded inferences."""
    folder = tmp_path_factory.mktemp("recorded")
    store = SqliteStore(folder / "store.db")
    store.open()
    store.write(ALL_ROWS)
    store.close()
    inferences = Inferences(lambda: RecordingReader(parse_dsn(str(folder / "store.db")), folder))
    parts = Parts(handlers=inferences.handlers, operations=inferences.operations)
    app = app_with_parts(build_engine(("detector",)), parts)
    yield schemathesis.openapi.from_asgi("/schema", app)
    inferences.close()


@pytest.mark.parametrize(
    ("path", "path_parameters", "query"),
    [
        ("/inferences", {}, {}),
        ("/inferences", {}, {"limit": 1, "label": "car", "min-score": 0.5, "where": ["frame = 3"]}),
        ("/inferences", {}, {"limit": 501}),
        ("/inferences", {}, {"box": "1"}),
        *(("/inferences/{id}", {"id": inference_id}, {}) for inference_id in [*ALL_IDS, "nothing"]),
        ("/inferences/{id}/image", {"id": "unsure"}, {}),
        ("/", {}, {}),
        ("/metrics", {}, {}),
    ],
)
def test_recording_responses_conform_to_schema(
    recordings_schema: Any, path: str, path_parameters: dict[str, str], query: dict[str, Any]
) -> None:
    case = recordings_schema[path]["GET"].Case(path_parameters=path_parameters, query=query)
    case.validate_response(case.call(), checks=CHECKS)
