"""Test KServe V1 where its golden cases say nothing: model states, raw images, metadata and events."""

import re
from datetime import datetime

import httpx
import pytest
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.protocols.kserve_v1.cloud_events import event_headers
from app.core.protocols.kserve_v1.routes import KServeV1
from app.core.server.http.asgi import create_app
from tests.support.data.chariot import IMAGE, Client
from tests.support.data.images import encode_image, rectangle
from tests.support.servers.grpc_server import build_engine


def test_loading_model_is_listed_but_not_ready() -> None:
    app = create_app(build_engine(("detector",), loaded=False), [KServeV1()], CollectorRegistry(), 1000)
    with TestClient(app) as client:
        assert client.get("/v1/models").json()["models"] == ["detector"]
        for response in (
            client.get("/v1/models/detector"),
            client.post("/v1/models/detector:predict", json={"instances": [1]}),
        ):
            assert response.status_code == 503
            assert response.json() == {"error": "Model with name detector is not ready. not loaded yet"}


# Images


@pytest.mark.parametrize(("file_format", "media_type"), [("PNG", "image/png"), ("JPEG", "IMAGE/X-ANY; quality=high")])
def test_raw_image_body_is_accepted(client: Client, file_format: str, media_type: str) -> None:
    content = encode_image(rectangle(), file_format)
    response = client.post("/v1/models/detector:predict", content=content, headers={"content-type": media_type})
    ((detection,),) = response.json()["predictions"]
    assert detection["label"] == "red"


def test_metadata_is_returned_byte_for_byte(client: Client) -> None:
    text = b'{"extended_metadata" : [{"key":"\\u00e9","type":"float","value":1.50}],  "n": 1e400, "f": "caf\\udce9"}'
    body = b'{"instances":["%s",{"b64":"%s","parameters":{"metadata":%s}}]}' % (*[IMAGE.encode()] * 2, text)
    response = client.post("/v1/models/detector:predict", content=body)
    assert response.status_code == 200, response.text
    assert response.content.endswith(b'"parameters":[{},{"metadata":' + text + b"}]}")


# CloudEvents 1.0.2 in the binary mode of the HTTP binding

BINARY = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/here", "ce-type": "a.b"}
DATA = {"instances": [1, 2]}


def post(client: Client, body: object, headers: dict[str, str], model: str = "half_plus_two") -> httpx.Response:
    return client.post(f"/v1/models/{model}:predict", json=body, headers=headers)


@pytest.mark.parametrize("extra_headers", [{"ce-time": "2026-11-21T10:00:00Z"}, {"ce-camera": "7", "content-type": ""}])
def test_binary_event_is_answered_with_event_headers(client: Client, extra_headers: dict[str, str]) -> None:
    response = post(client, DATA, {**BINARY, **extra_headers})
    assert response.status_code == 200, response.text
    assert response.json() == {"predictions": [2.5, 3.0]}
    assert response.headers["content-type"] == "application/json"
    event_headers = {name: value for name, value in response.headers.items() if name.startswith("ce-")}
    assert set(event_headers) == {"ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time"}
    assert event_headers["ce-specversion"] == "1.0"
    assert event_headers["ce-type"] == "io.kserve.inference.response"
    assert event_headers["ce-source"] == "io.kserve.inference.half_plus_two"
    assert datetime.fromisoformat(event_headers["ce-time"]).tzinfo is not None


def test_every_response_event_has_a_unique_id(client: Client) -> None:
    ids = {post(client, DATA, BINARY).headers["ce-id"] for _ in range(5)}
    assert len(ids - {"7"}) == 5
    assert all(re.fullmatch(r"[0-9a-f-]{36}", event_id) for event_id in ids)


def test_quoted_version_of_older_bindings_is_accepted(client: Client) -> None:
    assert post(client, DATA, {**BINARY, "ce-specversion": '"1.0"'}).status_code == 200


def test_model_failure_is_not_answered_with_an_event(client: Client) -> None:
    response = post(client, {"instances": [IMAGE]}, BINARY, "failing")
    assert response.status_code == 500
    assert response.json() == {"error": "The model failed: a model that fails on 1"}
    assert not [name for name in response.headers if name.startswith("ce-")]


@pytest.mark.parametrize("name", ["a b", "é", "x" * 300, 'q"', "a/b:c"])
def test_event_source_is_an_ascii_uri_reference(name: str) -> None:
    assert re.fullmatch(r"io\.kserve\.inference\.[A-Za-z0-9._~%-]+", dict(event_headers(name))["ce-source"])
