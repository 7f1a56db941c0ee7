"""Test what chariot-v2-kserve accepts, rejects and returns over HTTP besides its golden cases."""

import json
import uuid
from typing import Any

import pytest

from tests.support.data.chariot import Client, image_input, infer, items
from tests.support.data.images import encode_base64, encode_image, rectangle


@pytest.mark.parametrize("shape", [[1], [1, 1], [-1], [48, 64, 3], [777], []])
def test_shape_of_encoded_data_is_ignored(client: Client, shape: list[int]) -> None:
    assert len(items(infer(client, "detector", {**image_input(), "shape": shape}))) == 1


def test_id_comes_from_body_then_header_then_is_generated(client: Client) -> None:
    body = {"inputs": [image_input()]}
    headers = {"X-Request-ID": "from-header", "Chariot-Inference-Base-ID": "base"}
    response = client.post("/v2/models/m-detector/infer", json={**body, "id": "from-body"}, headers=headers)
    assert response.json()["id"] == "from-body"
    assert response.headers["x-request-id"] == "from-header"
    assert response.headers["chariot-inference-base-id"] == "base"
    assert client.post("/v2/models/m-detector/infer", json=body, headers=headers).json()["id"] == "from-header"
    generated = client.post("/v2/models/m-detector/infer", json={**body, "id": ""})
    assert uuid.UUID(generated.json()["id"]) == uuid.UUID(generated.headers["x-request-id"])


@pytest.mark.parametrize(
    "raw",
    [
        rb'"\u00e9\/ \u0041 [{\"key\": 1}]"',
        rb'{"b" : 1.10,  "a":[1e2, 12345678901234567890123], "a": null}',
        *(b"[ ]", b"null", b"12", b'""'),
        rb'"caf\udce9.jpg"',
        rb'{"\uDC00":["\ud83d", {"metadata" : "\ude00 \ud83d\ude00 \\udce9"}], "b": 1.10}',
        json.dumps('not JSON at all \u00e9\u4e2d "quoted" \\ back').encode(),
    ],
)
def test_metadata_json_is_returned_byte_for_byte(client: Client, raw: bytes) -> None:
    body = json.dumps({"inputs": [image_input(metadata=0)]}).encode().replace(b'"metadata": 0', b'"metadata": ' + raw)
    response = client.post("/v2/models/m-detector/infer", content=body)
    assert response.status_code == 200, response.text
    assert b'"parameters":{"metadata":' + raw + b"}" in response.content


def test_lone_surrogates_of_several_inputs_are_returned_with_their_output(client: Client) -> None:
    body = json.dumps({"inputs": [image_input(metadata=f"{number}\udce9\u00e9") for number in range(20)]})
    outputs = client.post("/v2/models/m-detector/infer", content=body.encode()).json()["outputs"]
    assert [output["parameters"]["metadata"] for output in outputs] == [f"{number}\udce9\u00e9" for number in range(20)]


@pytest.mark.parametrize(
    ("place", "path"), [("name", "inputs[0].name"), ("parameters", "inputs[0].parameters.labels"), ("id", "id")]
)
def test_lone_surrogate_elsewhere_is_rejected_beside_metadata_with_one(client: Client, place: str, path: str) -> None:
    tensor = image_input(metadata="\udce9", **({"labels": "\udce9"} if place == "parameters" else {}))
    body = {
        "id": "\udce9" if place == "id" else "a",
        "inputs": [{**tensor, "name": "\udce9"} if place == "name" else tensor],
    }
    response = client.post("/v2/models/m-detector/infer", content=json.dumps(body).encode())
    assert response.status_code == 400
    assert response.json()["error"].startswith(f"{path}: Expected Unicode")


FORM = b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.jpg"\r\n\r\n'


@pytest.mark.parametrize(
    ("body", "found"),
    [
        *((encode_image(rectangle(64, 48), name), f"a {name} image") for name in ("JPEG", "PNG", "GIF", "TIFF", "BMP")),
        (encode_image(rectangle(64, 48), "WEBP"), "a WebP image"),
        (b"\xff\xd8\xff" + b"{[" * 5000, "a JPEG image"),
        (FORM + encode_image(rectangle(64, 48)) + b"\r\n--b--\r\n", "a form (multipart/form-data)"),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.parametrize("path", ["/v2/models/m-detector/infer", "/v2/models/detector/infer"])
def test_image_instead_of_json_is_rejected_with_the_ways_that_work(
    client: Client, path: str, body: bytes, found: str
) -> None:
    response = client.post(path, content=body, headers={"content-type": "image/jpeg"})
    message = response.json()["error"]
    assert response.status_code == 400
    assert message.startswith(f"Expected JSON, got {found}. ")
    ways = ("as base64 in the JSON", "Inference-Header-Content-Length: 0", "--chariot-protocol chariot-v2")
    assert all(way in message for way in ways)


def test_invalid_metadata_is_counted_and_inference_succeeds(client: Client) -> None:
    before = _metadata_faults(client)
    broken = {"extended_metadata": [{"key": "a", "type": "int", "value": "x"}, {"key": "b"}]}
    assert infer(client, "detector", image_input(metadata=json.dumps(broken))).status_code == 200
    assert _metadata_faults(client) == before + 2


def _metadata_faults(client: Client) -> float:
    name = 'charioteer_metadata_faults_total{model="detector",protocol="chariot-v2-kserve"} '
    lines = [line for line in client.get("/metrics").text.splitlines() if line.startswith(name)]
    return float(lines[0].removeprefix(name)) if lines else 0


def test_metadata_and_statistics_accept_chariot_ids(client: Client) -> None:
    for path in ("/v2/models/m-detector", "/v2/models/m-DETECTOR/versions/1"):
        assert client.get(path).json() == client.get("/v2/models/detector").json()
    for path in ("/v2/models/m-detector/stats", "/v2/models/m-detector/versions/1/stats"):
        assert [stats["name"] for stats in client.get(path).json()["model_stats"]] == ["detector"]
    assert client.get("/v2/models/m-missing").status_code == 404
    assert client.get("/v2/models/m-missing/stats").status_code == 404


def one_input(**fields: object) -> dict[str, object]:
    """Return a request with one input and replace the given fields."""
    return {"inputs": [{**image_input(), **fields}]}


BAD_INPUTS: dict[str, tuple[object, str]] = {
    "bytes in metadata": (
        json.dumps(one_input(parameters={"metadata": 0})).encode().replace(b": 0", b': "\xff"'),
        "inputs[0].parameters.metadata",
    ),
    "shape overflow": (one_input(shape=[0, 2**63 - 1, 2**63 - 1], data=[], datatype="UINT8"), "inputs[0].shape"),
    "batch of 0 raw images": (one_input(shape=[0, 4, 4, 3], data=[], datatype="UINT8"), "inputs[0].shape"),
    "deeply nested labels": (one_input(parameters={"labels": "[" * 100_000}), "inputs[0].parameters.labels"),
    "empty data": (one_input(data=[]), "inputs[0].data"),
    "parameters of wrong type": (one_input(parameters=[1]), "inputs[0].parameters"),
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


def tensor(datatype: str, shape: list[int], data: object, name: str = "x") -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, "data": data}


def echoed(client: Client, model: str, *inputs: dict[str, Any]) -> list[tuple[list[int], list[Any]]]:
    return [(record["shape"], record["data"]) for record in items(infer(client, model, *inputs))]


@pytest.mark.parametrize("shape", [[2], [2, 1], [-1], [-1, 1], [2, -1]])
def test_one_dimensional_input_accepts_a_column_and_a_free_size(client: Client, shape: list[int]) -> None:
    numbers, words = tensor("INT64", shape, [1, 2], "numbers"), tensor("BYTES", shape, ["a", "b"], "words")
    assert echoed(client, "echo-pair", numbers, words) == [([2], [1, 2]), ([2], ["a", "b"])]


@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_any_size_may_be_free(client: Client, datatype: str) -> None:
    data: list[Any] = list("abcdef") if datatype == "BYTES" else [1, 2, 3, 4, 5, 6]
    for shape in ([-1, 3], [2, -1]):
        assert echoed(client, f"echo-{datatype.lower()}", tensor(datatype, shape, data)) == [([2, 3], data)]


def test_texts_may_be_nested_like_numbers(client: Client) -> None:
    assert echoed(client, "echo-bytes", tensor("BYTES", [2, -1], [["a", "b"], ["c", "d"]])) == [([2, 2], list("abcd"))]


@pytest.mark.parametrize("name", ["input-0", "", "anything"])
def test_only_input_of_a_model_may_have_any_name(client: Client, name: str) -> None:
    response = infer(client, "half_plus_two", tensor("FP32", [2], [1, 2], name))
    assert response.json()["outputs"][0]["name"] == name
    assert items(response)[0]["data"] == [2.5, 3.0]


@pytest.mark.parametrize(
    ("model", "datatype", "shape", "data"),
    [
        ("echo-fp32", "FP32", [3, 2], [[1, 2, 3], [4, 5, 6]]),
        ("echo-bytes", "BYTES", [2, 1], ["a", "b", "c"]),
        ("echo-bytes", "BYTES", [-1, 2], ["a", "b", "c"]),
        ("echo-bytes", "BYTES", [-1, -1], ["a", "b", "c"]),
        ("echo-bytes", "BYTES", [-1, 0], ["a", "b", "c"]),
        ("echo-bytes", "BYTES", [-2, 1], ["a", "b", "c"]),
        ("echo-bytes", "BYTES", [3, 1], [["a", "b", "c"]]),
        ("echo-fixed", "INT16", [1, 3, 2], [1, 2, 3, 4, 5, 6]),
        ("echo-encoded", "BYTES", [1, 3], ["a", "b", "c"]),
    ],
)
def test_shape_that_contradicts_data_or_model_is_rejected(
    client: Client, model: str, datatype: str, shape: list[int], data: object
) -> None:
    name = "x_bytes" if model == "echo-encoded" else "x"
    response = infer(client, model, tensor(datatype, shape, data, name))
    assert response.status_code == 400
    assert response.json()["error"].startswith("inputs[0].shape: ")
