"""Test that V1 rejects bad input that is no text of a golden case, and keeps serving."""

import json

import httpx
import pytest

from tests.support.data.chariot import IMAGE, Client
from tests.support.data.images import encode_image, rectangle


def post(client: Client, model: str, body: object, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(f"/v1/models/{model}:predict", content=content, headers=headers)


def assert_rejected(response: httpx.Response, message: str) -> None:
    assert response.status_code == 400, response.text
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    assert message in response.json()["error"]
    assert len(response.content) < 1000


BODIES: dict[str, tuple[str, bytes, str]] = {
    "not UTF-8": ("half_plus_two", b'{"instances": ["\xff"], "parameters": {"a": "\xff"}}', "UTF-8"),
    "UTF-16": ("half_plus_two", '{"instances": [1]}'.encode("utf-16"), "Unrecognized request format: "),
    "a huge number": ("half_plus_two", b'{"inputs": [%s]}' % (b"9" * 5000), "inputs"),
    "above the depth limit": ("half_plus_two", b'{"instances": %s1%s}' % (b"[" * 500, b"]" * 500), "100 deep"),
    "an image": ("half_plus_two", encode_image(rectangle()), "Unrecognized request format: "),
    "many dimensions": ("echo-deep", b'{"instances": [%s1%s]}' % (b"[" * 69, b"]" * 69), "instances"),
    "number in deep texts": ("greeter", b'{"instances": [%s"a", 1%s]}' % (b"[" * 70, b"]" * 70), "[0][1]: Expected a"),
}  # fmt: skip


@pytest.mark.parametrize(("model", "body", "message"), BODIES.values(), ids=BODIES)
def test_bad_body_is_rejected(client: Client, model: str, body: bytes, message: str) -> None:
    assert_rejected(post(client, model, body), message)
    assert post(client, "half_plus_two", {"instances": [1]}).json() == {"predictions": [2.5]}


def test_image_without_its_content_type_is_rejected_with_advice(client: Client) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}  # curl's default
    rejected = post(client, "detector", encode_image(rectangle()), **form)
    assert_rejected(rejected, "send an image with its Content-Type, such as image/jpeg")


@pytest.mark.parametrize("media_type", ["application/xml", "multipart/form-data; boundary=a", "a", "image"])
@pytest.mark.parametrize("model", ["detector", "half_plus_two"])
def test_unsupported_content_type_is_rejected(client: Client, model: str, media_type: str) -> None:
    message = f"Content-Type: Expected JSON{', or an image as image/*' if model == 'detector' else ''}, got '"
    assert_rejected(post(client, model, {"instances": [1]}, **{"content-type": media_type}), message)


@pytest.mark.parametrize("content", [b"", b"abc", encode_image(rectangle())[:60]])
def test_invalid_raw_image_body_is_rejected(client: Client, content: bytes) -> None:
    assert_rejected(post(client, "detector", content, **{"content-type": "image/png"}), "")


def test_errors_quote_long_values_only_in_part(client: Client) -> None:
    long_text = "x" * 100_000
    image = {"b64": IMAGE, "parameters": {"action": long_text}}
    for model, body in (
        ("detector", {"instances": [{**image, long_text: 1}]}),
        ("half_plus_two", f'{{"instances": [1], "{long_text}": NaN}}'.encode()),
        ("half_plus_two", {"instances": [{"x": 1, long_text: 1}]}),
        ("tagger", {"instances": [{"text": "a", "parameters": {"aggregation_strategy": long_text}}]}),
    ):
        response = post(client, model, body)
        assert response.status_code in (400, 413)
        assert len(response.content) < 4000, response.text[:200]
