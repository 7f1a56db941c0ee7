"""Test CloudEvents 1.0.2 for V1 requests and responses, in the HTTP binding and the JSON event format."""

import json
import re
from datetime import datetime
from typing import Any

import httpx
import pytest

from app.core.protocols.kserve_v1.cloud_events import EventMode, encode_event
from tests.core.protocols.kserve_v1.test_bad_input import assert_rejected as assert_json_error
from tests.support.data.chariot import Client
from tests.support.data.images import encode_base64, encode_image, rectangle

BINARY = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/here", "ce-type": "a.b"}
STRUCTURED = {"specversion": "1.0", "id": "7", "source": "/here", "type": "a.b"}
EVENT = "application/cloudevents+json"
DATA = {"instances": [1, 2]}
IMAGE = encode_image(rectangle())


def post(client: Client, body: object, headers: dict[str, str], model: str = "half_plus_two") -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(f"/v1/models/{model}:predict", content=content, headers=headers)


def assert_rejected(response: httpx.Response, message: str) -> None:
    """Check for a plain JSON error, because KServe does not send errors as events."""
    assert not [name for name in response.headers if name.startswith("ce-")]
    assert_json_error(response, message)


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


@pytest.mark.parametrize("content_type", [EVENT, f"{EVENT}; charset=UTF-8", EVENT.upper()])
def test_structured_event_is_answered_with_an_event(client: Client, content_type: str) -> None:
    response = post(client, {**STRUCTURED, "camera": 7, "subject": None, "data": DATA}, {"content-type": content_type})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == EVENT
    event = response.json()
    assert list(event) == ["specversion", "id", "source", "type", "time", "data"]
    assert event["data"] == {"predictions": [2.5, 3.0]}
    assert event["source"] == "io.kserve.inference.half_plus_two"
    assert event["type"] == "io.kserve.inference.response"


def test_every_response_event_has_a_unique_id(client: Client) -> None:
    ids = {post(client, DATA, BINARY).headers["ce-id"] for _ in range(5)}
    ids |= {post(client, {**STRUCTURED, "data": DATA}, {"content-type": EVENT}).json()["id"] for _ in range(5)}
    assert len(ids - {"7"}) == 10
    assert all(re.fullmatch(r"[0-9a-f-]{36}", event_id) for event_id in ids)


def test_body_with_all_event_attributes_is_read_as_an_event(client: Client) -> None:
    event = {**STRUCTURED, "time": "2026-11-21T10:00:00Z", "data": DATA}
    for content_type in ("application/json", "application/ld+json", "", "application/octet-stream"):
        response = post(client, event, {"content-type": content_type})
        assert response.headers["content-type"] == EVENT, response.text
    for name in STRUCTURED:
        partial = {key: value for key, value in event.items() if key != name}
        assert_rejected(post(client, partial, {"content-type": "application/json"}), "instances")


def test_plain_request_with_some_event_attributes_stays_plain(client: Client) -> None:
    response = post(client, {**DATA, "id": 5, "type": ["x"], "time": None}, {"content-type": "application/json"})
    assert response.json() == {"predictions": [2.5, 3.0]}


def test_content_type_takes_precedence_over_event_headers(client: Client) -> None:
    """Read a structured event that repeats its attributes in headers."""
    response = post(client, {**STRUCTURED, "data": DATA}, {**BINARY, "content-type": EVENT})
    assert response.headers["content-type"] == EVENT
    assert "ce-id" not in response.headers


@pytest.mark.parametrize(
    ("event", "count"),
    [
        ({"data_base64": encode_base64(IMAGE), "datacontenttype": "image/png"}, 1),
        ({"data_base64": encode_base64(json.dumps({"instances": [encode_base64(IMAGE)]}).encode())}, 1),
        ({"data": {"inputs": [encode_base64(IMAGE)] * 2}, "datacontenttype": "application/json; charset=utf-8"}, 2),
        ({"data": {"inputs": [encode_base64(IMAGE)]}, "datacontenttype": None}, 1),
    ],
)
def test_event_data_is_accepted_in_every_form(client: Client, event: dict[str, Any], count: int) -> None:
    response = post(client, {**STRUCTURED, **event}, {"content-type": EVENT}, "detector")
    assert response.status_code == 200, response.text
    assert len(response.json()["data"]["predictions"]) == count


@pytest.mark.parametrize("name", BINARY)
def test_binary_event_without_required_attribute_is_rejected(client: Client, name: str) -> None:
    missing = {key: header for key, header in BINARY.items() if key != name}
    for headers in (missing, {**missing, name: ""}):
        assert_rejected(post(client, DATA, headers), f"{name}: Expected all of")


@pytest.mark.parametrize("name", STRUCTURED)
@pytest.mark.parametrize("value", ["", 5, "absent"])
def test_structured_event_without_required_attribute_is_rejected(client: Client, name: str, value: object) -> None:
    event = {**STRUCTURED, name: value, "data": DATA}
    if value == "absent":
        del event[name]
    assert_rejected(post(client, event, {"content-type": EVENT}), f"{name}: Expected")


@pytest.mark.parametrize("version", ["0.3", "1.0.2"])
def test_unsupported_cloud_events_version_is_rejected(client: Client, version: str) -> None:
    assert_rejected(post(client, DATA, {**BINARY, "ce-specversion": version}), 'ce-specversion: Expected version "1.0"')
    event = {**STRUCTURED, "specversion": version, "data": DATA}
    assert_rejected(post(client, event, {"content-type": EVENT}), 'specversion: Expected version "1.0"')


def test_quoted_version_of_older_bindings_is_accepted(client: Client) -> None:
    assert post(client, DATA, {**BINARY, "ce-specversion": '"1.0"'}).status_code == 200


BAD_EVENTS: list[tuple[str, object, str]] = [
    ("no data", STRUCTURED, "either data or data_base64"),
    ("data and data_base64", {**STRUCTURED, "data": DATA, "data_base64": "e30="}, "either data or data_base64"),
    ("data is text", {**STRUCTURED, "data": json.dumps(DATA)}, "data: Expected `object`, got `str`"),
    ("data_base64 is a number", {**STRUCTURED, "data_base64": 5}, "data_base64: Expected"),
    ("data_base64 is not JSON", {**STRUCTURED, "data_base64": "YQ=="}, "data_base64: The body is not valid JSON"),
    ("neither key in data", {**STRUCTURED, "data": {}}, 'data: Expected either "instances" or "inputs"'),
    ("bad parameter", {**STRUCTURED, "data": {"instances": [1], "parameters": 5}}, "data.parameters: Expected"),
    ("image for tensors", {**STRUCTURED, "datacontenttype": "image/png", "data_base64": "YQ=="}, "datacontenttype:"),
    ("data of unsupported type", {**STRUCTURED, "datacontenttype": "text/csv", "data": "1"}, "datacontenttype: Exp"),
    ("datacontenttype is a number", {**STRUCTURED, "datacontenttype": 5, "data": DATA}, "datacontenttype: Expected"),
    ("not an object", [STRUCTURED], "Unrecognized request format"),
]


@pytest.mark.parametrize(("body", "message"), [case[1:] for case in BAD_EVENTS], ids=[case[0] for case in BAD_EVENTS])
def test_bad_event_is_rejected(client: Client, body: object, message: str) -> None:
    assert_rejected(post(client, body, {"content-type": EVENT}), message)


def test_event_with_invalid_image_is_rejected(client: Client) -> None:
    event = {**STRUCTURED, "datacontenttype": "image/png"}
    for name, data in (("data_base64", "YWJj"), ("data_base64", ""), ("data", "YWJj")):
        assert_rejected(post(client, {**event, name: data}, {"content-type": EVENT}, "detector"), f"{name}: ")


def test_model_failure_is_not_answered_with_an_event(client: Client) -> None:
    response = post(client, {"instances": [encode_base64(IMAGE)]}, BINARY, "failing")
    assert response.status_code == 500
    assert response.json() == {"error": "The model failed: a model that fails on 1"}
    assert not [name for name in response.headers if name.startswith("ce-")]


@pytest.mark.parametrize("name", ["a b", "é", "x" * 300, 'q"', "a/b:c"])
def test_event_source_is_an_ascii_uri_reference(name: str) -> None:
    answer = encode_event(EventMode.BINARY, name, b"{}")
    assert (answer.content, answer.media_type) == (b"{}", "application/json")
    assert re.fullmatch(r"io\.kserve\.inference\.[A-Za-z0-9._~%-]+", dict(answer.headers)["ce-source"])
    answer = encode_event(EventMode.STRUCTURED, name, b"{}")
    assert not answer.headers
    assert json.loads(answer.content)["source"].startswith("io.kserve.inference.")
