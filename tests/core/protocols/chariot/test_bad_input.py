"""Test that chariot-v2-kserve rejects bad input with an error message and keeps serving."""

import json

import pytest

from tests.support.data.chariot import Client, image_input, infer, items
from tests.support.data.images import encode_base64, encode_image, rectangle
from tests.support.servers.fake_app import MAX_REQUEST_BYTES


def one_input(**fields: object) -> dict[str, object]:
    """Return a request with one input and replace the given fields."""
    return {"inputs": [{**image_input(), **fields}]}


def pixels(shape: list[int], data: list[float], datatype: str = "UINT8") -> dict[str, object]:
    """Return a request with raw pixels."""
    return one_input(shape=shape, data=data, datatype=datatype)


def parameters(**values: object) -> dict[str, object]:
    """Return a request with one image and parameters."""
    return one_input(parameters=values)


def body_with(name: bytes, raw: bytes) -> bytes:
    """Return a request body in which the parameter `name` has the JSON value `raw`."""
    return json.dumps(parameters(marker=0)).encode().replace(b'"marker": 0', b'"' + name + b'": ' + raw)


BAD_INPUTS: list[tuple[str, object, int, str]] = [
    ("empty body", b"", 400, "empty body"),
    ("bad JSON", b'{"inputs": [', 400, "JSON"),
    ("not an object", b"[]", 400, "object"),
    ("not UTF-8", b'{"inputs": [{"name": "\xff"}]}', 400, "UTF-8"),
    ("NaN", body_with(b"score_threshold", b"NaN"), 400, "inputs[0].parameters.score_threshold"),
    ("lone surrogate", b'{"inputs": [{"name": "\\ud800"}]}', 400, "inputs[0].name"),
    ("deeply nested", b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400, "100 deep"),
    ("bytes in metadata", body_with(b"metadata", b'"\xff"'), 400, "inputs[0].parameters.metadata"),
    ("shape overflow", pixels([0, 2**63 - 1, 2**63 - 1], []), 400, "inputs[0].shape"),
    ("batch of 0 raw images", pixels([0, 4, 4, 3], []), 400, "inputs[0].shape"),
    ("deeply nested labels", parameters(labels="[" * 100_000), 400, "inputs[0].parameters.labels"),
    ("missing inputs", {}, 400, "inputs"),
    ("empty inputs", {"inputs": []}, 400, "inputs"),
    ("inputs of wrong type", {"inputs": "x"}, 400, "inputs"),
    ("id of wrong type", {"inputs": [image_input()], "id": 5}, 400, "id"),
    *[
        (f"no {field}", {"inputs": [{key: value for key, value in image_input().items() if key != field}]}, 400, field)
        for field in ("name", "shape", "datatype", "data")
    ],
    ("shape of wrong type", one_input(shape=["a"]), 400, "inputs[0].shape[0]"),
    ("unknown datatype", one_input(datatype="STRING"), 400, "inputs[0].datatype"),
    ("data of wrong type", {"inputs": [image_input([5])]}, 400, "inputs[0].data[0]"),
    ("null data", one_input(data=None), 400, "inputs[0].data"),
    ("empty data", {"inputs": [image_input([])]}, 400, "inputs[0].data"),
    ("parameters of wrong type", one_input(parameters=[1]), 400, "inputs[0].parameters"),
    ("bad base64", {"inputs": [image_input("!!!!")]}, 400, "inputs[0].data[0]: Expected base64"),
    ("long bad base64", {"inputs": [image_input(), image_input("*" + "A" * 5000)]}, 400, "inputs[1].data[0]"),
    ("empty string", {"inputs": [image_input("")]}, 400, "inputs[0].data[0]"),
    ("not an image", {"inputs": [image_input(encode_base64(b"hello, world"))]}, 400, "inputs[0].data[0]"),
    ("image of height 0", pixels([0, 4, 3], []), 400, "inputs[0]"),
    ("pixels out of range", pixels([1, 1], [256]), 400, "inputs[0].data"),
    ("fractional pixels in an integer tensor", pixels([1, 1], [1.5]), 400, "inputs[0].data[0]"),
    ("float pixels above 1", pixels([1, 1], [200.0], "FP32"), 400, "inputs[0].data"),
    ("pixels in BF16", pixels([1, 1], [1], "BF16"), 400, "inputs[0].datatype"),
    ("threshold as text", parameters(score_threshold="0.5"), 400, "inputs[0].parameters.score_threshold"),
    ("top_k of 0", parameters(top_k=0), 400, "inputs[0].parameters.top_k"),
    ("labels of numbers", parameters(labels=[5]), 400, "inputs[0].parameters.labels[0]"),
    ("too many inputs", {"inputs": [image_input("aaaa")] * 1000}, 413, "inputs"),
    ("too many images", {"inputs": [image_input(["aaaa"] * 1000)]}, 413, "inputs"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("body", "status", "message"), [case[1:] for case in BAD_INPUTS], ids=[case[0] for case in BAD_INPUTS]
)
def test_bad_input_is_rejected_with_an_error_message(client: Client, body: object, status: int, message: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = client.post("/v2/models/m-detector/infer", content=content)
    assert response.status_code == status
    assert list(response.json()) == ["error"]
    assert message in response.json()["error"]
    assert items(infer(client, "detector", image_input())), "the server keeps serving"


def test_too_many_prompts_or_tokens_and_text_without_image_are_rejected(client: Client) -> None:
    assert infer(client, "teller", image_input(prompts=["?"] * 257)).status_code == 413
    assert infer(client, "teller", image_input(max_new_tokens=10**6)).status_code == 413
    assert "texts only" in infer(client, "teller", image_input("?", name="prompt")).json()["error"]


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF"])
def test_truncated_image_is_rejected(client: Client, file_format: str) -> None:
    image_bytes = encode_image(rectangle(200, 150), file_format)
    response = infer(client, "detector", image_input(encode_base64(image_bytes[: int(len(image_bytes) * 0.9)])))
    assert response.status_code == 400
    assert response.json()["error"].startswith("inputs[0].data[0]: ")


def test_body_over_the_limit_is_rejected(client: Client) -> None:
    response = client.post("/v2/models/m-detector/infer", content=b"x" * (MAX_REQUEST_BYTES + 1))
    assert response.status_code == 413
    assert response.json() == {"error": "The body is larger than this server accepts"}


def test_unknown_model_version_path_or_method_is_rejected(client: Client) -> None:
    body = {"inputs": [image_input()]}
    for path in ("/v2/models/m-missing/infer", "/v2/models/m-detector/versions/9/infer", "/v2/models/missing/infer"):
        assert client.post(path, json=body).status_code == 404
        assert list(client.post(path, json=body).json()) == ["error"]
    bare = client.post("/infer", json=body)
    assert bare.status_code == 404
    assert "/v2/models/m-detector/infer" in bare.json()["error"]
    assert client.get("/nowhere").json() == {"error": "Nothing is served at /nowhere"}
    assert client.get("/infer").status_code == 405
    assert list(client.get("/infer").json()) == ["error"]


def test_failing_model_returns_500_with_its_error(client: Client) -> None:
    response = infer(client, "failing", image_input())
    assert response.status_code == 500
    assert response.json() == {"error": "The model failed: a model that fails on 1"}
    assert items(infer(client, "detector", image_input())), "other models keep serving"


def test_error_before_the_body_is_read_has_an_id_and_is_counted(client: Client) -> None:
    response = client.post("/v2/models/m-missing/infer", content=b"")
    assert response.status_code == 404
    assert response.headers["x-request-id"]
    assert 'outcome="model_not_found"' in client.get("/metrics").text
