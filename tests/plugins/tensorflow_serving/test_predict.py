"""Test the TensorFlow Serving listener beyond the golden exchanges: states, labels, CORS, metrics and bodies."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.engine.engine import Engine
from app.core.engine.models.registry import ModelState, Registration
from app.core.engine.models.servable import Servable
from app.core.plugins import registry
from app.core.server.http.asgi import create_listener_app
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import DEMO_MODELS
from app.plugins.tensorflow_serving.routes import TensorFlowServing
from tests.support.servers.apps import MAX_REQUEST_BYTES, load_test_model
from tests.support.servers.grpc_server import build_engine_from_sources

Client = TestClient[Litestar]

LABELS = {"stable": "1", "canary": "3", "broken": "4"}


def source(name: str, version: str = "1", **settings: Any) -> ModelSource:
    return ModelSource(name=name, version=version, folder=Path(name), settings=registry().model_settings(**settings))


def load(source: ModelSource) -> Servable:
    if source.version == "4":
        raise ModelError("its file is empty")
    if source.name == "versioned":
        return load_test_model(ModelSource(name="echo-int64", version=source.version, folder=source.folder))
    return load_test_model(source)


def listener_client(engine: Engine, *, any_origin: bool = False) -> Client:
    return TestClient(create_listener_app(engine, TensorFlowServing(any_origin=any_origin), MAX_REQUEST_BYTES))


@pytest.fixture(scope="module")
def engine() -> Engine:
    names = ("classifier", "detector", "failing", "half_plus_two", "echo-pair", "greeter")
    versions = [source("versioned", version, version_labels=LABELS) for version in ("1", "2", "3", "4", "1.5")]
    others = [ModelSource(name=name, version="1", folder=DEMO_MODELS / name) for name in names]
    return build_engine_from_sources([*versions, *others], load)


@pytest.fixture(scope="module")
def client(engine: Engine) -> Iterator[Client]:
    with listener_client(engine) as client:
        yield client


def version_states(client: Client, path: str = "/v1/models/versioned") -> list[tuple[str, str, str, str]]:
    answer = client.get(path)
    assert answer.status_code == 200, answer.text
    return [
        (status["version"], status["state"], status["status"]["error_code"], status["status"]["error_message"])
        for status in answer.json()["model_version_status"]
    ]


def error_message(client: Client, path: str, body: object, status: int) -> str:
    content = body if isinstance(body, bytes) else json.dumps(body)
    answer = client.post(path, content=content)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    reply = answer.json()
    assert list(reply) == ["error"]
    return reply["error"]


def test_status_lists_every_version_with_the_latest_first(client: Client) -> None:
    assert version_states(client) == [
        ("4", "END", "UNKNOWN", "its file is empty"),
        ("3", "AVAILABLE", "OK", ""),
        ("2", "AVAILABLE", "OK", ""),
        ("1.5", "AVAILABLE", "OK", ""),
        ("1", "AVAILABLE", "OK", ""),
    ]
    assert version_states(client, "/v1/models/versioned/labels/stable") == version_states(client)
    assert version_states(client, "/v1/models/versioned/versions/4") == version_states(client)[:1]


def test_loading_version_is_loading_and_unloaded_version_is_end(engine: Engine, client: Client) -> None:
    def set_state(state: ModelState, *, wanted: bool) -> None:
        registration = Registration(source=source("other"), state=state, reason="not loaded yet", enabled=wanted)
        engine.registry.replace("other", [registration])

    set_state(ModelState.LOADING, wanted=True)
    assert version_states(client, "/v1/models/other") == [("1", "LOADING", "OK", "")]
    message = "Servable not found for request: Latest(other)"
    assert error_message(client, "/v1/models/other:predict", {"instances": [1]}, 404) == message
    assert client.get("/v1/models/other/metadata").json() == {"error": message}
    set_state(ModelState.UNAVAILABLE, wanted=False)
    assert version_states(client, "/v1/models/other") == [("1", "END", "OK", "")]


def test_latest_ready_version_is_the_default(client: Client) -> None:
    assert client.get("/v1/models/versioned/metadata").json()["model_spec"]["version"] == "3"
    assert client.get("/v1/models/versioned/versions/2/metadata").json()["model_spec"]["version"] == "2"
    assert client.get("/v1/models/versioned/versions/002/metadata").json()["model_spec"]["version"] == "2"
    for version in ("versions/4", "labels/broken"):
        message = error_message(client, f"/v1/models/versioned/{version}:predict", {"instances": [[1]]}, 404)
        assert message == "Servable not found for request: Specific(versioned, 4)"


@pytest.mark.parametrize(("label", "version"), [("stable", "1"), ("canary", "3"), ("c%61nary", "3")])
def test_label_selects_a_version(client: Client, label: str, version: str) -> None:
    path = f"/v1/models/versioned/labels/{label}"
    assert client.get(f"{path}/metadata").json()["model_spec"]["version"] == version
    answer = client.post(f"{path}:predict", json={"instances": [[7]]})
    assert (answer.status_code, answer.json()) == (200, {"predictions": [[7]]})


@pytest.mark.parametrize("any_origin", [False, True])
def test_cors_headers_are_sent_only_if_enabled(engine: Engine, any_origin: bool) -> None:
    expected_headers = {
        "access-control-allow-origin": "*",
        "access-control-allow-methods": "POST, GET",
        "access-control-allow-headers": "Content-Type",
    }
    path = "/v1/models/half_plus_two"
    with listener_client(engine, any_origin=any_origin) as client:
        answers = [
            client.get(path),
            client.post(f"{path}:predict", content=b"{"),
            client.options(f"{path}:predict", headers={"Origin": "https://example.org"}),
            client.options(f"{path}:predict"),
        ]
    assert [answer.status_code for answer in answers] == [200, 400, 200, 400]
    for answer in answers:
        cors_headers = {name: value for name, value in answer.headers.items() if name.startswith("access-control")}
        assert cors_headers == (expected_headers if any_origin else {})
