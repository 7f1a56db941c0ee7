"""Rules of the server on the port of TensorFlow Serving: methods, keys, and pages of other sites."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from litestar import Litestar
from litestar.testing import TestClient
from litestar.types import ASGIApp

from app.core.assembly.models import find_models
from app.core.assembly.service import Service
from app.core.plugins import registry
from app.core.server.auth.http_access import HttpAccess
from app.core.server.http.asgi import create_listener_app
from app.core.settings.server import ModelOptions
from app.plugins.tensorflow_serving.routes import TensorFlowServing
from tests.support.servers.apps import MAX_REQUEST_BYTES
from tests.support.servers.auth_apps import INFER_KEY, READ_KEY, access_with_keys, bearer_header
from tests.support.servers.grpc_server import build_engine

MODEL = "detector"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")
MISSING = "Expected a key or a token in Authorization or X-API-Key, got neither"


def port_app(access: HttpAccess | None = None) -> Litestar:
    return create_listener_app(build_engine((MODEL,)), TensorFlowServing(), MAX_REQUEST_BYTES, access)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Litestar]]:
    with TestClient(port_app()) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        (f"/v1/models/{MODEL}", ["GET", "OPTIONS"]),
        (f"/v1/models/{MODEL}/versions/1/metadata", ["GET", "OPTIONS"]),
        (f"/v1/models/{MODEL}:predict", ["OPTIONS", "POST"]),
        (f"/v1/models/{MODEL}:Predict", ["OPTIONS"]),
        ("/v1/models", ["OPTIONS"]),
        ("/v1/anything", ["OPTIONS"]),
    ],
)
def test_allow_depends_on_the_path(client: TestClient[Litestar], path: str, allowed: list[str]) -> None:
    response = client.options(path, headers={"origin": "http://a.test"})
    assert response.headers["allow"].split(", ") == allowed
    for method in METHODS:
        text = client.request(method, path).text
        assert ("Malformed request" in text or "Missing model name" in text) is (method not in allowed), method


def test_head_is_answered_by_the_protocol(client: TestClient[Litestar]) -> None:
    assert client.get(f"/v1/models/{MODEL}").status_code == 200
    # TensorFlow Serving does the same.
    head_response = client.head(f"/v1/models/{MODEL}")
    assert (head_response.status_code, head_response.content) == (400, b"")


def test_port_requires_keys(tmp_path: Path) -> None:
    with TestClient(port_app(HttpAccess(access_with_keys(tmp_path)))) as client:
        for path in ("/v1/models/detector", "/v1/models/detector/metadata", "/v1/nothing", "/x", "/"):
            response = client.get(path)
            assert (response.status_code, response.json()) == (401, {"error": MISSING})
        assert client.get("/v1/models/detector", headers=bearer_header(INFER_KEY)).status_code == 200
        assert client.get("/monitoring/prometheus/metrics", headers=bearer_header(INFER_KEY)).status_code == 403
        assert client.get("/monitoring/prometheus/metrics", headers=bearer_header(READ_KEY)).status_code == 200
        assert client.post("/v1/models/detector:predict", headers=bearer_header(READ_KEY)).status_code == 403
        # Only a preflight needs no key; the metrics need one for every method.
        assert client.options("/v1/models/detector", headers={"Origin": "https://app.example"}).status_code == 200
        for method in ("OPTIONS", "HEAD", "POST", "PUT", "DELETE"):
            assert client.request(method, "/monitoring/prometheus/metrics").status_code == 401, method


PREDICT = "/v1/models/half_plus_two:predict"
LISTED = "https://app.example, https://other.example"
APP_PAGE = {"Origin": "https://app.example", "Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"}


@cache
def page_client(origins: str) -> TestClient[ASGIApp]:
    """Return a client of the port; its models are not loaded, so a request that is let through gets 404."""
    settings = registry().settings(grpc=False, page=False, tensorflow_serving=True, tensorflow_serving_cors=origins)
    app = Service(settings, lambda: find_models(ModelOptions())).listeners[1].app
    return TestClient(app, base_url="http://127.0.0.1:8080")


@pytest.mark.parametrize(
    ("origins", "headers", "status"),
    [("", APP_PAGE, 403), ("", {}, 404), (LISTED, APP_PAGE, 404), ("*", APP_PAGE, 404)],
)
def test_posts_from_pages_without_permission_are_rejected(origins: str, headers: dict[str, str], status: int) -> None:
    response = page_client(origins).post(PREDICT, content='{"instances": [1.0]}', headers=headers)
    assert response.status_code == status
    assert ("another site" in response.json()["error"]) is (status == 403)


def test_listed_origin_passes_preflight_and_reads_responses() -> None:
    client = page_client(LISTED)
    wanted = "authorization,content-type"
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": wanted}
    response = client.options(PREDICT, headers={"Origin": "https://app.example", **preflight})
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (204, "https://app.example")
    assert "authorization" in response.headers["access-control-allow-headers"]
    response = client.post(PREDICT, content="{}", headers=APP_PAGE)
    assert response.headers["access-control-allow-origin"] == "https://app.example"
    response = client.options(PREDICT, headers={"Origin": "https://evil.example", **preflight})
    assert (response.status_code, "access-control-allow-origin" in response.headers) == (400, False)
