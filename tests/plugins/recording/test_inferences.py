"""Recorded inferences over HTTP."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.plugins import registry
from app.core.server.http.errors import create_error_handlers
from app.plugins.recording.images import ImageFile, ImageFolder
from app.plugins.recording.inferences import Inferences
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.service import recording_routes
from app.plugins.recording.stores.store import parse_dsn
from tasks.inference.error import ErrorKind, InferenceError
from tests.support.data.recorded_rows import recorded_rows, write_store

IMAGES = Path(__file__).parents[3] / "fixtures" / "images"
DIGESTS = {name: letter * 64 for name, letter in (("jpeg", "a"), ("html", "b"), ("gone", "c"))}


def client_of(inferences: Inferences) -> TestClient[Litestar]:
    options: Any = {"exception_handlers": create_error_handlers(), "openapi_config": None, "logging_config": None}
    return TestClient(Litestar(inferences.handlers, on_shutdown=[inferences.close], **options))


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient[Litestar]]:
    """Serve a store of inferences, three of them with images."""
    folder = tmp_path_factory.mktemp("recorded")
    contents = {"jpeg": (IMAGES / "scene.jpg").read_bytes(), "html": b"<html><script>alert(1)</script>"}
    images = [ImageFile(DIGESTS[name], content) for name, content in contents.items()]
    ImageFolder(folder / "images", durable=False).write(images)
    cars = [{"label": "car", "score": 0.5}]
    rows = [recorded_rows(f"{number}-0-0", {"frame": number}, cars) for number in range(60)]
    rows += [recorded_rows(name, image_digest=digest, image_kept=True) for name, digest in DIGESTS.items()]
    store = write_store(folder / "store.db", *rows)
    inferences = Inferences(lambda: RecordingReader(parse_dsn(store), folder / "images"))
    with client_of(inferences) as client:
        yield client


def test_next_leads_through_all_pages(client: TestClient[Litestar]) -> None:
    ids: list[str] = []
    parameters: dict[str, Any] = {"label": "car", "where": ["frame >= 5", "frame < 50"], "limit": "20"}
    for expected in (20, 20, 5):
        response = client.get("/inferences", params=parameters)
        assert response.status_code == 200
        page = response.json()
        assert len(page["inferences"]) == expected
        ids += [inference["id"] for inference in page["inferences"]]
        parameters["after"] = page["next"]
    assert page["next"] is None
    assert ids == [f"{number}-0-0" for number in range(49, 4, -1)]


def test_inference_is_returned_by_id_and_unknown_id_is_404(client: TestClient[Litestar]) -> None:
    inference = client.get("/inferences/7-0-0").json()
    assert inference["metadata"] == [{"key": "frame", "type": "int", "value": 7}]
    missing = client.get("/inferences/missing")
    assert (missing.status_code, missing.json()) == (404, {"error": "There is no inference 'missing'"})


def test_image_has_its_own_content_type_and_another_file_is_an_attachment(client: TestClient[Litestar]) -> None:
    image, other = (client.get(f"/inferences/{name}/image") for name in ("jpeg", "html"))
    assert image.content == (IMAGES / "scene.jpg").read_bytes()
    for response, media_type, disposition in (
        (image, "image/jpeg", None),
        (other, "application/octet-stream", "attachment"),
    ):
        assert response.headers["content-type"] == media_type
        assert response.headers.get("content-disposition") == disposition
        assert response.headers["x-content-type-options"] == "nosniff"
        assert response.headers["content-security-policy"] == "default-src 'none'; sandbox"


@pytest.mark.parametrize("name", ["gone", "7-0-0"])
def test_image_that_is_not_stored_is_404(client: TestClient[Litestar], name: str) -> None:
    response = client.get(f"/inferences/{name}/image")
    assert (response.status_code, response.json()) == (404, {"error": f"The image of '{name}' is not stored"})


@pytest.mark.parametrize(
    ("query", "error_text"),
    [
        ("min-score=high", "min-score: Expected a score within 0..1, got 'high'"),
        ("min_score=2", "min-score: Expected a score within 0..1, got 2"),
        ("limit=501", "limit: Expected a whole number from 1 to 500"),
        ("limit=%D9%A1", "limit: Expected a whole number"),
        ("after=x", "after: Expected the value of next from the previous page"),
        ("sql=SELECT+1", "'sql': Expected one of after, base-id"),
        ("model=a&model=b", "model: Expected it once"),
    ],
)
def test_invalid_query_parameter_is_400_and_named(client: TestClient[Litestar], query: str, error_text: str) -> None:
    response = client.get(f"/inferences?{query}")
    assert response.status_code == 400
    assert response.json()["error"].startswith(error_text)


ABSENT, DISABLED = (503, "there is no such file"), (404, "--serve-inferences enables it")


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"record": None}, (404, "This server records nothing; set --record to a store")),
        ({"host": "0.0.0.0"}, DISABLED),
        ({"host": "engine.example"}, DISABLED),
        ({"serve_inferences": False}, DISABLED),
        ({"host": "127.0.0.1"}, ABSENT),
        ({"host": "localhost"}, ABSENT),
        ({"host": "0.0.0.0", "serve_inferences": True}, ABSENT),
    ],
)
def test_recordings_are_404_unless_recorded_and_on_loopback_or_enabled(
    settings: dict[str, Any], expected: tuple[int, str]
) -> None:
    with client_of(recording_routes(registry().settings(**{"record": "x.db", **settings}))) as client:
        for path in ("/inferences", "/inferences/a", "/inferences/a/image"):
            response = client.get(path)
            assert response.status_code == expected[0]
            assert expected[1] in response.json()["error"]


def test_queries_beyond_the_limit_are_rejected_and_counted() -> None:
    metrics, gate = CollectorRegistry(), threading.Event()

    def open_reader() -> RecordingReader:
        assert gate.wait(60)
        raise InferenceError(ErrorKind.MODEL_NOT_READY, "The store does not answer")

    inferences = Inferences(open_reader, metrics=metrics)
    with client_of(inferences) as client, ThreadPoolExecutor(17) as threads:
        requests = [threads.submit(client.get, "/inferences") for _ in range(17)]
        rejected = next(as_completed(requests)).result()
        gate.set()
        assert sorted(request.result().status_code for request in requests) == [429, *[503] * 16]
    inferences.close()
    assert "queries of recordings wait, which is the maximum" in rejected.json()["error"]
    assert rejected.headers["retry-after"] == "1"
    assert metrics.get_sample_value("charioteer_queries_refused_total") == 1
