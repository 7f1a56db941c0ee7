"""Test KServe V1 where its golden cases say nothing: model states, long values, metadata and events."""

import json
import re
from datetime import datetime

import pytest
from litestar.testing import TestClient
from prometheus_client import CollectorRegistry

from app.core.protocols.kserve_v1.cloud_events import event_headers
from app.core.protocols.kserve_v1.routes import KServeV1
from app.core.server.http.asgi import create_app
from tests.support.data.chariot import IMAGE, Client
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


def test_errors_quote_long_values_only_in_part(client: Client) -> None:
    long_text = "x" * 100_000
    image = {"b64": IMAGE, "parameters": {"action": long_text}}
    for model, body in (
        ("detector", json.dumps({"instances": [{**image, long_text: 1}]})),
        ("half_plus_two", f'{{"instances": [1], "{long_text}": NaN}}'),
        ("half_plus_two", f'{{"inputs": [{"9" * 5000}]}}'),
        ("half_plus_two", json.dumps({"instances": [{"x": 1, long_text: 1}]})),
        (
            "continuer",
            json.dumps(
                {"instances": [{"text": "a", "parameters": {"messages": [{"role": long_text, "content": []}]}}]}
            ),
        ),
    ):
        response = client.post(f"/v1/models/{model}:predict", content=body.encode())
        assert response.status_code in (400, 413)
        assert len(response.content) < 4000, response.text[:200]


def test_metadata_is_returned_byte_for_byte(client: Client) -> None:
    text = b'{"extended_metadata" : [{"key":"\\u00e9","type":"float","value":1.50}],  "n": 1e400, "f": "caf\\udce9"}'
    body = b'{"instances":["%s",{"b64":"%s","parameters":{"metadata":%s}}]}' % (*[IMAGE.encode()] * 2, text)
    response = client.post("/v1/models/detector:predict", content=body)
    assert response.status_code == 200, response.text
    assert response.content.endswith(b'"parameters":[{},{"metadata":' + text + b"}]}")


# CloudEvents 1.0.2 in the binary mode of the HTTP binding


def test_binary_event_is_answered_with_event_headers_of_its_own(client: Client) -> None:
    sent = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/here", "ce-type": "a.b", "content-type": ""}

    def answered(model: str, instance: object) -> dict[str, str]:
        response = client.post(f"/v1/models/{model}:predict", json={"instances": [instance]}, headers=sent)
        assert response.headers["content-type"] == "application/json"
        return {name: value for name, value in response.headers.items() if name.startswith("ce-")}

    first, second = answered("half_plus_two", 1), answered("half_plus_two", 1)
    assert first.keys() == {"ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time"}
    assert re.fullmatch(r"[0-9a-f-]{36}", first["ce-id"])
    assert first["ce-id"] != second["ce-id"]
    assert datetime.fromisoformat(first["ce-time"]).tzinfo is not None
    assert answered("failing", IMAGE) == {}, "a failure of the model is no event"


@pytest.mark.parametrize("name", ["a b", "é", "x" * 300, 'q"', "a/b:c"])
def test_event_source_is_an_ascii_uri_reference(name: str) -> None:
    assert re.fullmatch(r"io\.kserve\.inference\.[A-Za-z0-9._~%-]+", dict(event_headers(name))["ce-source"])
