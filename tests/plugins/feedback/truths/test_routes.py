"""Truths over HTTP, by a whole application."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.server.http.errors import create_error_handlers
from app.plugins.feedback.truths.matching import MAX_BYTES
from app.plugins.feedback.truths.routes import Truths
from app.plugins.feedback.truths.truth_store import TruthStore
from app.plugins.recording.stores.store import parse_dsn
from tests.plugins.feedback.truths.recorded import CAR, detection
from tests.support.data.recorded_rows import write_store


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient[Litestar]]:
    truths = Truths(TruthStore(parse_dsn(write_store(tmp_path / "store.db", detection("a", CAR)))))
    options: Any = {"exception_handlers": create_error_handlers(), "openapi_config": None, "logging_config": None}
    with TestClient(Litestar(truths.handlers, on_shutdown=[lambda: truths.close(1)], **options)) as client:
        yield client


def test_truth_is_stored_shown_and_withdrawn(client: TestClient[Litestar]) -> None:
    path = "/inferences/a-0-0/truth"
    assert client.get(path).status_code == 404
    stored = client.put(path, json={"records": [CAR], "source": "me"})
    assert (stored.status_code, stored.json()["verdict"], stored.json()["revision"]) == (200, "right", 1)
    assert client.get(path).json() == stored.json()
    assert client.put(path, json={"verdict": "wrong"}).json()["revision"] == 2
    assert client.delete(path).json() == {}
    assert client.get(path).json() == {"error": "The inference 'a-0-0' has no truth"}


def test_lines_have_one_result_each(client: TestClient[Litestar]) -> None:
    lines = '{"id": "a-0-0", "verdict": "right"}\n\n{"id": "x", "verdict": "right"}\n'
    answer = client.post("/inferences/truths", content=lines).json()
    assert answer == {"matched": 1, "results": [{"result": "matched", "ids": ["a-0-0"]}, {"result": "unknown"}]}


ONE, MANY = "/inferences/a-0-0/truth", "/inferences/truths"


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "message"),
    [
        ("PUT", "/inferences/x/truth", {"verdict": "right"}, 404, "There is no inference 'x'"),
        ("DELETE", "/inferences/x/truth", b"", 404, "There is no inference 'x'"),
        ("PUT", ONE, {"verdict": "maybe"}, 400, "verdict"),
        ("PUT", ONE, {"verdicts": "right"}, 400, "verdicts"),
        ("PUT", ONE, {"records": [{"label": "cat"}]}, 400, "Expected records of OBJECT"),
        ("PUT", ONE, {"records": [{"label": "a"}] * 10_001}, 400, "10000"),
        ("PUT", ONE, {"records": [{**CAR, "xmax": 1}]}, 400, "records: Expected boxes with xmin"),
        ("PUT", ONE, {"verdict": "right", "comment": "x" * MAX_BYTES}, 413, "bytes in a body"),
        ("POST", MANY, b"", 400, 'body: Expected JSON lines such as {"id"'),
        ("POST", MANY, b"{}\n" * 1001, 413, "1,000 lines"),
        ("POST", f"{MANY}?spread=yes", b"", 400, "spread: Expected true or false, got 'yes'"),
        ("POST", f"{MANY}?Spread=true", b"", 400, "'Spread': Expected spread, the only parameter"),
    ],
)
def test_invalid_request_names_the_field(
    client: TestClient[Litestar], method: str, path: str, body: object, status: int, message: str
) -> None:
    response = client.request(method, path, content=body if isinstance(body, bytes) else json.dumps(body).encode())
    assert response.status_code == status
    assert message in response.json()["error"]


def test_writing_needs_the_permission_label(tmp_path: Path) -> None:
    truths = Truths(TruthStore(parse_dsn(str(tmp_path / "store.db"))))
    one, many = "/inferences/{id:str}/truth", "/inferences/truths"
    needed = {("GET", one): "read", ("PUT", one): "label", ("DELETE", one): "label", ("POST", many): "label"}
    for handler in truths.handlers:
        for path, method in itertools.product(handler.paths, handler.http_methods):
            assert handler.opt["permission"] == needed[method, path]
    assert {(item.method, item.path): item.permission for item in truths.operations} == needed
    truths.close(1)
