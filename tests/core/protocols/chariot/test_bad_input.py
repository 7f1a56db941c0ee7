"""Test bad input to chariot-v2-kserve that the golden cases lack: the error names its field, and others are served."""

import json

import pytest

from tests.support.data.chariot import Client, image_input, infer, items
from tests.support.data.images import encode_base64, encode_image, rectangle


def one_input(**fields: object) -> dict[str, object]:
    """Return a request with one input and replace the given fields."""
    return {"inputs": [{**image_input(), **fields}]}


BAD_INPUTS: dict[str, tuple[object, str]] = {
    "not UTF-8": (b'{"inputs": [{"name": "\xff"}]}', "UTF-8"),
    "lone surrogate": (b'{"inputs": [{"name": "\\ud800"}]}', "inputs[0].name"),
    "deeply nested": (b'{"inputs":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "100 deep"),
    "bytes in metadata": (
        json.dumps(one_input(parameters={"metadata": 0})).encode().replace(b": 0", b': "\xff"'),
        "inputs[0].parameters.metadata",
    ),
    "shape overflow": (one_input(shape=[0, 2**63 - 1, 2**63 - 1], data=[], datatype="UINT8"), "inputs[0].shape"),
    "batch of 0 raw images": (one_input(shape=[0, 4, 4, 3], data=[], datatype="UINT8"), "inputs[0].shape"),
    "deeply nested labels": (one_input(parameters={"labels": "[" * 100_000}), "inputs[0].parameters.labels"),
    "data of wrong type": (one_input(data=[5]), "inputs[0].data[0]"),
    "null data": (one_input(data=None), "inputs[0].data"),
    "empty data": (one_input(data=[]), "inputs[0].data"),
    "parameters of wrong type": (one_input(parameters=[1]), "inputs[0].parameters"),
    "long bad base64": ({"inputs": [image_input(), image_input("*" + "A" * 5000)]}, "inputs[1].data[0]"),
    "pixels in BF16": (one_input(shape=[1, 1], data=[1], datatype="BF16"), "inputs[0].datatype"),
    "empty string": (one_input(data=[""]), "inputs[0].data[0]"),
}


@pytest.mark.parametrize(("body", "message"), BAD_INPUTS.values(), ids=BAD_INPUTS)
def test_bad_input_is_rejected_with_an_error_message(client: Client, body: object, message: str) -> None:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    response = client.post("/v2/models/m-detector/infer", content=content)
    assert response.status_code == 400
    assert list(response.json()) == ["error"]
    assert message in response.json()["error"]
    assert items(infer(client, "detector", image_input())), "the server keeps serving"


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF"])
def test_truncated_image_is_rejected(client: Client, file_format: str) -> None:
    image_bytes = encode_image(rectangle(200, 150), file_format)
    response = infer(client, "detector", image_input(encode_base64(image_bytes[: int(len(image_bytes) * 0.9)])))
    assert response.status_code == 400
    assert response.json()["error"].startswith("inputs[0].data[0]: ")


def test_error_before_the_body_is_read_has_an_id_and_is_counted(client: Client) -> None:
    response = client.post("/v2/models/m-missing/infer", content=b"")
    assert response.status_code == 404
    assert response.headers["x-request-id"]
    assert 'outcome="model_not_found"' in client.get("/metrics").text
