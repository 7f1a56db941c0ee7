"""CloudEvents around V1's requests and answers, by the HTTP binding and the JSON event format, version 1.0.2."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import httpx
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.protocols.kserve_v1.cloud_events import EventMode, answer_event
from tests.support.pictures import base64_text, encoded, rectangle
from tests.support.served import build

Client = TestClient[Litestar]

BINARY = {"ce-specversion": "1.0", "ce-id": "7", "ce-source": "/here", "ce-type": "a.b"}
STRUCTURED = {"specversion": "1.0", "id": "7", "source": "/here", "type": "a.b"}
EVENT = "application/cloudevents+json"
DATA = {"instances": [1, 2]}
PICTURE = encoded(rectangle())


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with TestClient(build(("detector", "half_plus_two", "failing"))) as client:
        yield client


def post(client: Client, body: object, headers: dict[str, str], model: str = "half_plus_two") -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(f"/v1/models/{model}:predict", content=content, headers=headers)


def assert_refused(response: httpx.Response, said: str) -> None:
    """Errors are no events: KServe's are not, and a sender that looks for ``error`` finds it."""
    assert response.status_code == 400, response.text
    assert response.headers["content-type"] == "application/json"
    assert not [name for name in response.headers if name.startswith("ce-")]
    assert list(response.json()) == ["error"]
    assert said in response.json()["error"]


@pytest.mark.parametrize("more", [{}, {"ce-time": "2026-11-21T10:00:00Z"}, {"ce-camera": "7", "content-type": "a"[:0]}])
def test_binary_mode(client: Client, more: dict[str, str]) -> None:
    response = post(client, DATA, {**BINARY, **more})
    assert response.status_code == 200, response.text
    assert response.json() == {"predictions": [2.5, 3.0]}
    assert response.headers["content-type"] == "application/json"
    found = {name: value for name, value in response.headers.items() if name.startswith("ce-")}
    assert set(found) == {"ce-specversion", "ce-id", "ce-source", "ce-type", "ce-time"}
    assert found["ce-specversion"] == "1.0"
    assert found["ce-type"] == "io.kserve.inference.response"
    assert found["ce-source"] == "io.kserve.inference.half_plus_two"
    assert datetime.fromisoformat(found["ce-time"]).tzinfo is not None


@pytest.mark.parametrize("content_type", [EVENT, f"{EVENT}; charset=UTF-8", EVENT.upper()])
def test_structured_mode(client: Client, content_type: str) -> None:
    response = post(client, {**STRUCTURED, "camera": 7, "subject": None, "data": DATA}, {"content-type": content_type})
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == EVENT
    event = response.json()
    assert list(event) == ["specversion", "id", "source", "type", "time", "data"]
    assert event["data"] == {"predictions": [2.5, 3.0]}
    assert event["source"] == "io.kserve.inference.half_plus_two"
    assert event["type"] == "io.kserve.inference.response"


def test_every_answer_has_an_id_of_its_own(client: Client) -> None:
    ids = {post(client, DATA, BINARY).headers["ce-id"] for _ in range(5)}
    ids |= {post(client, {**STRUCTURED, "data": DATA}, {"content-type": EVENT}).json()["id"] for _ in range(5)}
    assert len(ids - {"7"}) == 10
    assert all(re.fullmatch(r"[0-9a-f-]{36}", each) for each in ids)


def test_a_body_that_looks_like_an_event_is_one(client: Client) -> None:
    event = {**STRUCTURED, "time": "2026-11-21T10:00:00Z", "data": DATA}
    for content_type in ("application/json", "application/ld+json", "", "application/octet-stream"):
        response = post(client, event, {"content-type": content_type})
        assert response.headers["content-type"] == EVENT, response.text
    for name in STRUCTURED:
        partial = {key: value for key, value in event.items() if key != name}
        assert_refused(post(client, partial, {"content-type": "application/json"}), "instances")


def test_names_of_an_event_do_not_make_a_plain_request_one(client: Client) -> None:
    response = post(client, {**DATA, "id": 5, "type": ["x"], "time": None}, {"content-type": "application/json"})
    assert response.json() == {"predictions": [2.5, 3.0]}


def test_the_content_type_goes_before_the_headers(client: Client) -> None:
    """A structured event may have its attributes in headers too."""
    response = post(client, {**STRUCTURED, "data": DATA}, {**BINARY, "content-type": EVENT})
    assert response.headers["content-type"] == EVENT
    assert "ce-id" not in response.headers


@pytest.mark.parametrize(
    ("event", "data"),
    [
        ({"data_base64": base64_text(PICTURE), "datacontenttype": "image/png"}, 1),
        ({"data_base64": base64_text(json.dumps({"instances": [base64_text(PICTURE)]}).encode())}, 1),
        ({"data": {"inputs": [base64_text(PICTURE)] * 2}, "datacontenttype": "application/json; charset=utf-8"}, 2),
        ({"data": {"inputs": [base64_text(PICTURE)]}, "datacontenttype": None}, 1),
    ],
)
def test_data_in_every_form(client: Client, event: dict[str, Any], data: int) -> None:
    response = post(client, {**STRUCTURED, **event}, {"content-type": EVENT}, "detector")
    assert response.status_code == 200, response.text
    assert len(response.json()["data"]["predictions"]) == data


def test_binary_mode_with_an_image(client: Client) -> None:
    response = post(client, PICTURE, {**BINARY, "content-type": "image/png"}, "detector")
    assert response.headers["ce-type"] == "io.kserve.inference.response"
    assert len(response.json()["predictions"][0]) == 1


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("value", [None, ""])
def test_an_attribute_of_binary_mode_that_is_missing(client: Client, name: str, value: str | None) -> None:
    headers = {key: each for key, each in BINARY.items() if key != name}
    if value is not None:
        headers[name] = value
    assert_refused(post(client, DATA, headers), f"{name}: Expected all of")


@pytest.mark.parametrize("name", STRUCTURED)
@pytest.mark.parametrize("value", [None, "", 5, "absent"])
def test_an_attribute_of_structured_mode_that_is_missing(client: Client, name: str, value: object) -> None:
    event = {**STRUCTURED, name: value, "data": DATA}
    if value == "absent":
        del event[name]
    assert_refused(post(client, event, {"content-type": EVENT}), f"{name}: Expected")


@pytest.mark.parametrize("version", ["0.3", "1", "2.0", "1.0.2"])
def test_another_version_of_cloud_events(client: Client, version: str) -> None:
    assert_refused(post(client, DATA, {**BINARY, "ce-specversion": version}), 'ce-specversion: Expected version "1.0"')
    event = {**STRUCTURED, "specversion": version, "data": DATA}
    assert_refused(post(client, event, {"content-type": EVENT}), 'specversion: Expected version "1.0"')


def test_a_quoted_version_is_read_as_older_bindings_wrote_it(client: Client) -> None:
    assert post(client, DATA, {**BINARY, "ce-specversion": '"1.0"'}).status_code == 200


BAD: list[tuple[str, object, str]] = [
    ("no data", STRUCTURED, "either data or data_base64"),
    ("both", {**STRUCTURED, "data": DATA, "data_base64": "e30="}, "either data or data_base64"),
    ("data is text", {**STRUCTURED, "data": json.dumps(DATA)}, "data: Expected `object`, got `str`"),
    ("data is null", {**STRUCTURED, "data": None}, "data: Expected `object`, got `null`"),
    ("data is no base64", {**STRUCTURED, "data_base64": "a*"}, "data_base64: Expected base64"),
    ("data_base64 is a number", {**STRUCTURED, "data_base64": 5}, "data_base64: Expected"),
    ("data_base64 is no JSON", {**STRUCTURED, "data_base64": "YQ=="}, "data_base64: The body is not valid JSON"),
    ("neither name in data", {**STRUCTURED, "data": {}}, 'data: Expected either "instances" or "inputs"'),
    ("bad instance", {**STRUCTURED, "data": {"instances": ["a"]}}, "data.instances[0]: Expected FP32"),
    ("bad parameter", {**STRUCTURED, "data": {"instances": [1], "parameters": 5}}, "data.parameters: Expected"),
    ("image for tensors", {**STRUCTURED, "datacontenttype": "image/png", "data_base64": "YQ=="}, "datacontenttype:"),
    ("other data", {**STRUCTURED, "datacontenttype": "text/csv", "data": "1,2"}, "datacontenttype: Expected JSON"),
    ("type of data", {**STRUCTURED, "datacontenttype": 5, "data": DATA}, "datacontenttype: Expected"),
    ("not an object", [STRUCTURED], "Unrecognized request format"),
    ("empty", b"", "Unrecognized request format"),
]


@pytest.mark.parametrize(("body", "said"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_bad_event(client: Client, body: object, said: str) -> None:
    assert_refused(post(client, body, {"content-type": EVENT}), said)


def test_an_image_of_an_event_that_is_none(client: Client) -> None:
    event = {**STRUCTURED, "datacontenttype": "image/png"}
    assert_refused(post(client, {**event, "data_base64": "YWJj"}, {"content-type": EVENT}, "detector"), "data_base64: ")
    assert_refused(post(client, {**event, "data_base64": ""}, {"content-type": EVENT}, "detector"), "data_base64: ")
    assert_refused(post(client, {**event, "data": "YWJj"}, {"content-type": EVENT}, "detector"), "data: ")


def test_batches_are_not_read(client: Client) -> None:
    batch = [{**STRUCTURED, "data": DATA}]
    headers = {"content-type": "application/cloudevents-batch+json"}
    assert_refused(post(client, batch, headers), "Content-Type: Expected JSON")


def test_what_fails_on_the_way_is_no_event_either(client: Client) -> None:
    response = post(client, {"instances": [base64_text(PICTURE)]}, BINARY, "failing")
    assert response.status_code == 500
    assert response.json() == {"error": "The model failed: a model that fails on 1"}
    assert not [name for name in response.headers if name.startswith("ce-")]


@pytest.mark.parametrize("name", ["a b", "é", "x" * 300, 'q"', "a/b:c"])
def test_sources_are_uri_references_in_ascii(name: str) -> None:
    content, headers, media_type = answer_event(EventMode.BINARY, name, b"{}")
    assert (content, media_type) == (b"{}", "application/json")
    assert re.fullmatch(r"io\.kserve\.inference\.[A-Za-z0-9._~%-]+", headers["ce-source"])
    content, headers, media_type = answer_event(EventMode.STRUCTURED, name, b"{}")
    assert not headers
    assert json.loads(content)["source"].startswith("io.kserve.inference.")


def test_what_is_no_event_is_answered_plainly() -> None:
    assert answer_event(EventMode.NONE, "m", b"{}") == (b"{}", {}, "application/json")
