"""Test that V1 rejects bad input with an error in the client's terms and keeps serving."""

import json
from typing import Any

import httpx
import pytest

from tests.support.data.chariot import IMAGE, Client
from tests.support.data.images import encode_base64, encode_image, rectangle


def post(client: Client, model: str, body: object, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return client.post(f"/v1/models/{model}:predict", content=content, headers=headers)


def assert_rejected(response: httpx.Response, message: str, status: int = 400) -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    assert list(response.json()) == ["error"]
    assert message in response.json()["error"]
    assert len(response.content) < 1000


BODIES: list[tuple[str, object, str]] = [
    ("a list", b"[]", "Unrecognized request format: Expected `object`, got `array`"),
    ("not UTF-8", b'{"instances": ["\xff"], "parameters": {"a": "\xff"}}', "UTF-8"),
    ("UTF-16", '{"instances": [1]}'.encode("utf-16"), "Unrecognized request format: "),
    ("both keys", {"instances": [1], "inputs": [1]}, "got both"),
    ("null for a list", {"instances": None}, "instances: Expected `array`, got `null`"),
    ("parameters of wrong type", {"inputs": [1], "parameters": []}, "parameters: Expected `object | null`"),
    ("NaN", b'{"instances": [1, NaN]}', "instances[1]: Expected a finite number, got nan"),
    ("overflow", b'{"inputs": [1e999]}', "inputs[0]: Number out of range"),
    ("a huge number", b'{"inputs": [%s]}' % (b"9" * 5000), "inputs"),
    ("lone surrogate", b'{"instances": ["\\ud800"]}', "instances[0]: Expected Unicode text, got half of a"),
    ("above the depth limit", b'{"instances": %s1%s}' % (b"[" * 500, b"]" * 500), "100 deep"),
    ("an image", encode_image(rectangle()), "Unrecognized request format: "),
]  # fmt: skip


@pytest.mark.parametrize(("body", "message"), [case[1:] for case in BODIES], ids=[case[0] for case in BODIES])
def test_bad_body_is_rejected(client: Client, body: object, message: str) -> None:
    assert_rejected(post(client, "half_plus_two", body), message)
    assert post(client, "half_plus_two", {"instances": [1]}).json() == {"predictions": [2.5]}


def test_image_without_its_content_type_is_rejected_with_advice(client: Client) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}  # curl's default
    rejected = post(client, "detector", encode_image(rectangle()), **form)
    assert_rejected(rejected, "send an image with its Content-Type, such as image/jpeg")


ROWS: list[tuple[str, str, list[object], str]] = [
    ("an unknown name", "half_plus_two", [{"z": 1}], "instances[0]: Expected a value for the input 'x'"),
    ("mixed depth", "echo-fp32", [[1], 2], "instances: Expected a flat array, or nested rows"),
    ("more dimensions than NumPy has", "echo-deep", [json.loads("[" * 69 + "1" + "]" * 69)], "instances"),
    ("number among deep texts", "greeter", [json.loads("[" * 70 + '"a", 1' + "]" * 70)], "[0][1]: Expected a text"),
    ("bytes that are not UTF-8", "greeter", ["a", {"b64": "/w=="}], "instances[1]: Expected text in UTF-8"),
    ("no image", "teller", [{"prompt": "a"}], "instances[0]: Expected the image under"),
    ("prompts twice", "teller", [{"b64": IMAGE, "prompt": "a", "text": "b"}], "in one place, got 'prompt' and 'text'"),
    ("prompts in two places", "teller", [{"b64": IMAGE, "prompt": "a", "parameters": {"prompts": ["b"]}}],
     "instances[0]: Expected prompts in one place, got 'prompt' and parameters.prompts"),
    ("prompts of numbers", "teller", [{"b64": IMAGE, "parameters": {"prompts": 5}}],
     "instances[0].parameters.prompts: Expected"),
    ("too many tokens", "teller", [{"b64": IMAGE, "prompt": "a", "parameters": {"max_new_tokens": 10**6}}],
     "parameters.max_new_tokens: "),
]  # fmt: skip


@pytest.mark.parametrize(("model", "instances", "message"), [case[1:] for case in ROWS], ids=[case[0] for case in ROWS])
def test_bad_instance_is_rejected(client: Client, model: str, instances: list[object], message: str) -> None:
    assert_rejected(post(client, model, {"instances": instances}), message, 413 if "tokens" in message else 400)


NOT_AN_IMAGE = encode_base64(b"abc")

IMAGES: list[tuple[str, Any, str]] = [
    ("a number", 5, "inputs[1]: Expected an image as base64"),
    ("truncated image", encode_base64(encode_image(rectangle())[:60]), "inputs[1]: The image cannot be decoded"),
    ("a web address", "http://localhost/a.png", "inputs[1]: Expected base64"),
    ("an empty object", {}, 'inputs[1]: Expected the image under "image" or "b64", got []'),
    ("twice", {"b64": IMAGE, "image": IMAGE}, "got 'b64' and 'image'"),
    ("b64 is a number", {"b64": 5}, "inputs[1].b64: Expected `str`, got `int`"),
    ("image is another object", {"image": {"b": "a"}}, "inputs[1].image: Expected an image as base64"),
    ("bytes of a text", {"image_bytes": {"b64": NOT_AN_IMAGE}}, "inputs[1].image_bytes.b64: Expected an encoded image"),
    ("a parameter of wrong type", {"b64": IMAGE, "parameters": {"top_k": "1"}}, "inputs[1].parameters.top_k: "),
    ("a row of pixels", [1, 2], "inputs[1]: Expected the rows of one image, [h, w] or [h, w, 3], got the shape [2]"),
    ("no columns", [[]], "inputs[1]: Expected an image of at least 1x1 pixels, got 0x1"),
    ("a pixel above 255", [[256]], "inputs[1]: Expected UINT8 numbers, got one out of range"),
    ("a fraction of a pixel", [[0.5]], "inputs[1][0][0]: Expected UINT8 numbers, got float"),
    ("ragged pixels", {"image": [[1, 2], [3]]}, "inputs[1].image[1]: Expected rows of one length, 2, got one of 1"),
]  # fmt: skip


@pytest.mark.parametrize(("instance", "message"), [case[1:] for case in IMAGES], ids=[case[0] for case in IMAGES])
def test_bad_image_is_rejected(client: Client, instance: object, message: str) -> None:
    assert_rejected(post(client, "detector", {"inputs": [IMAGE, instance]}), message)


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
