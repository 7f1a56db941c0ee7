"""Options of the port, labels of versions, accepted paths, and rules for methods, keys and pages of other sites."""

import asyncio
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient
from litestar.types import ASGIApp

from app.core.assembly.models import find_models
from app.core.assembly.service import Service
from app.core.plugins import registry
from app.core.server.auth.http_access import HttpAccess
from app.core.server.http.asgi import create_listener_app
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import ModelOptions, SettingsError
from app.plugins.tensorflow_serving.protocols import protocols
from app.plugins.tensorflow_serving.routes import TensorFlowServing
from app.plugins.tensorflow_serving.targets import ModelTarget, Verb, parse_target
from tasks.inference.error import InferenceError
from tests.support.rejection import rejects
from tests.support.servers.apps import MAX_REQUEST_BYTES
from tests.support.servers.auth_apps import INFER_KEY, READ_KEY, access_with_keys, bearer_header
from tests.support.servers.grpc_server import build_engine
from tests.support.servers.settings import settings_of_main_port


@pytest.mark.parametrize(
    ("options", "ports"),
    [
        ({}, None),
        ({"tensorflow_serving": True}, (8501, 8500)),
        ({"tensorflow_serving_port": 0}, (0, 8500)),
        ({"tensorflow_grpc_port": 9}, (8501, 9)),
        ({"tensorflow_serving": False, "tensorflow_serving_port": 9}, None),
    ],
)
def test_ports_open_if_protocol_or_port_is_asked_for(options: dict[str, int], ports: tuple[int, int] | None) -> None:
    enabled = protocols(registry().settings(**options))
    found = (*(port.port for port in enabled.ports), *enabled.grpc_ports.values())
    assert (found, bool(enabled.grpc)) == (ports or (), ports is not None)


@pytest.mark.parametrize(
    ("text", "origins"), [("", []), (" * ", ["*"]), ("https://a.a, http://b.b", ["https://a.a", "http://b.b"])]
)
def test_cors_names_origins_or_any(text: str, origins: list[str]) -> None:
    (port,) = protocols(registry().settings(tensorflow_serving=True, tensorflow_serving_cors=text)).ports
    assert port.origins == origins


@pytest.mark.parametrize("text", ["true", "https://a.example,*"])
def test_invalid_origin_is_rejected(text: str) -> None:
    with pytest.raises(SettingsError, match=r"--tensorflow-serving-cors: expected .*, or \* for any, got"):
        protocols(registry().settings(tensorflow_serving=True, tensorflow_serving_cors=text))


def source(version: str, **labels: str) -> ModelSource:
    settings = registry().model_settings(version_labels=labels)
    return ModelSource(name="m", version=version, folder=Path("m"), settings=settings)


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([source("1", canary="3"), source("2")], "There is no version '3' to be called 'canary'"),
        ([source("1", stable="1"), source("2", stable="2")], "Its versions disagree on 'stable'"),
    ],
)
def test_server_with_wrong_labels_does_not_start(sources: list[ModelSource], message: str) -> None:
    with pytest.raises(ModelError, match=f"^Model 'm': version_labels: {message}"):
        Service(settings_of_main_port(), lambda: sources)


def test_load_of_a_model_with_wrong_labels_is_rejected() -> None:
    sources = [source("1", stable="1")]
    service = Service(settings_of_main_port(), lambda: sources)
    sources[:] = [source("1", stable="7")]
    with rejects("There is no version '7' to be called 'stable'"):
        asyncio.run(service.engine.repository.load("m"))


def target(model: str, verb: Verb, **fields: Any) -> ModelTarget:
    return ModelTarget(model=model, verb=verb, **fields)


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/v1/models/m", target("m", "status")),
        ("GET", "/v1/models/m/versions/7", target("m", "status", version=7)),
        ("GET", "/v1/models/m/versions/007", target("m", "status", version=7)),
        ("GET", f"/v1/models/m/versions/{'0' * 5000}7", target("m", "status", version=7)),
        ("GET", "/v1/models/m/labels/stable", target("m", "status", label="stable")),
        ("GET", "/v1/models/m/metadata", target("m", "metadata")),
        ("GET", "/v1/models/m/versions/7/metadata", target("m", "metadata", version=7)),
        ("GET", "/v1/models/metadata", target("metadata", "status")),
        # The path pattern ignores case, but the comparison with `metadata` does not.
        ("GET", "/V1/MODELS/m/METADATA", target("m", "status")),
        ("GET", "/v1/models/m?x=1", target("m?x=1", "status")),
        ("POST", "/v1/models/m:predict", target("m", "predict")),
        ("POST", "/v1/models/m:regress", target("m", "regress")),
        ("POST", "/V1/models/M/VERSIONS/3:predict", target("M", "predict", version=3)),
        ("POST", "/v1/models/m/labels/a%20b:predict", target("m", "predict", label="a b")),
        ("POST", "/v1/models/a%2Fb%3Ac:predict", target("a/b:c", "predict")),
        ("POST", "/v1/models/Zo%C3%AB:predict", target("Zoë", "predict")),
        ("POST", "/v1/models/a+b:predict", target("a+b", "predict")),
        ("POST", "/v1/models/%FF:predict", target("\ufffd", "predict")),
        ("POST", f"/v1/models/m/versions/{2**63 - 1}:predict", target("m", "predict", version=2**63 - 1)),
    ],
)
def test_valid_path_is_parsed(method: str, path: str, expected: ModelTarget) -> None:
    assert parse_target(method, path) == expected


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/"),
        ("GET", "/v1/models/debug/model_name"),
        ("GET", "/v1/models/m:predict"),
        ("GET", "/v1/models/m/version/50:predict"),
        ("GET", "/v1/models/m/versions/-1"),
        ("GET", "/v1/models/m/versions/٣"),
        ("POST", "/v1/models"),
        ("POST", "/v1/models/m/metadata"),
        ("POST", "/v1/models/:predict"),
        ("POST", "/v1/models/m:predict?x=1"),
        ("POST", "/v1/models/m:Predict"),
        ("POST", "/v1/models/m/versions/1/labels/a:predict"),
    ],
)
def test_invalid_path_is_malformed(method: str, path: str) -> None:
    with pytest.raises(InferenceError) as caught:
        parse_target(method, path)
    assert str(caught.value) == f"Malformed request: {method} {path}"


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
        assert client.post("/v1/models/detector:predict", headers=bearer_header(READ_KEY)).status_code == 403
        # Only a preflight needs no key.
        assert client.options("/v1/models/detector", headers={"Origin": "https://app.example"}).status_code == 200


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
