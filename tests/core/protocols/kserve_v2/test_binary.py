"""Test the binary tensor extension of the Open Inference Protocol over REST, in both directions."""

import json
import struct
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.inference.tensor import Datatype
from tests.support.data.chariot import Client
from tests.support.data.images import encode_image, rectangle
from tests.support.data.requests import pack_elements, unpack_elements

HEADER = "inference-header-content-length"
ONE_TWO = struct.pack("<2f", 1, 2)

# The tests of gRPC's codec have the other datatypes, in the same form.
EXTREMES = {
    "FP16": [np.nan, -np.inf, -0.0, 65504],
    "FP64": [np.nan, -np.inf, -0.0, np.finfo(np.float64).max],
    "BF16": [0x3F80, 0x7F80, 0xFFFF],
}


def tensor(datatype: str, shape: list[int], size: object, name: str = "x") -> dict[str, Any]:
    """Return an input whose data follows the JSON."""
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


def post(client: Client, model: str, body: dict[str, Any], *blocks: bytes) -> httpx.Response:
    """Send a request with its tensors after the JSON."""
    head = json.dumps(body).encode()
    content = head + b"".join(blocks)
    return client.post(f"/v2/models/{model}/infer", content=content, headers={HEADER: str(len(head))})


def raw(client: Client, model: str, body: bytes) -> httpx.Response:
    """Send a request whose body is one tensor."""
    return client.post(f"/v2/models/{model}/infer", content=body, headers={HEADER: "0"})


def error_message(response: httpx.Response) -> str:
    """Check that a request is rejected, and return the error message."""
    assert response.status_code == 400, response.text
    assert list(response.json()) == ["error"]
    return response.json()["error"]


def split_response(response: httpx.Response) -> tuple[dict[str, Any], list[bytes]]:
    """Return the JSON of a response and the block of bytes of each output that has one."""
    assert response.status_code == 200, response.text
    length = int(response.headers[HEADER])
    assert response.headers["content-type"] == "application/octet-stream"
    answer: dict[str, Any] = json.loads(response.content[:length])
    blocks: list[bytes] = []
    remaining = response.content[length:]
    for output in answer["outputs"]:
        size: int | None = output.get("parameters", {}).get("binary_data_size")
        assert (size is None) == ("data" in output)
        if size is not None:
            blocks.append(remaining[:size])
            remaining = remaining[size:]
    assert remaining == b""
    return answer, blocks


@pytest.mark.parametrize("datatype", EXTREMES)
def test_binary_numbers_round_trip_bit_for_bit(client: Client, datatype: str) -> None:
    array: NDArray[Any] = np.array([EXTREMES[datatype]], Datatype(datatype).dtype)
    body = {
        "inputs": [tensor(datatype, [*array.shape], array.nbytes)],
        "outputs": [{"name": "x", "parameters": {"binary_data": True}}],
    }
    answer, (block,) = split_response(post(client, f"echo-{datatype.lower()}", body, array.tobytes()))
    assert block == array.tobytes()
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("x", datatype, [*array.shape])


@pytest.mark.parametrize(("datatype", "block"), [("FP16", b"\0\x3c"), ("BF16", b"\x80\x3f")])
def test_output_without_a_form_in_json_is_rejected(client: Client, datatype: str, block: bytes) -> None:
    response = post(client, f"echo-{datatype.lower()}", {"inputs": [tensor(datatype, [1, 1], 2)]}, block)
    assert error_message(response) == f"outputs: {datatype} has no form in JSON; request 'x' with binary_data"


@pytest.mark.parametrize(
    ("request_value", "output_value", "binary"),
    [
        (None, None, False),
        (True, None, False),
        (True, False, False),
        (True, True, True),
        (False, True, True),
        (None, True, True),
    ],
)
def test_named_output_uses_its_own_binary_parameter(
    client: Client, request_value: bool | None, output_value: bool | None, binary: bool
) -> None:
    body: dict[str, Any] = {"inputs": [tensor("FP32", [2], 8)], "outputs": [{"name": "y"}]}
    if request_value is not None:
        body["parameters"] = {"binary_data_output": request_value}
    if output_value is not None:
        body["outputs"][0]["parameters"] = {"binary_data": output_value}
    response = post(client, "half_plus_two", body, ONE_TWO)
    assert response.status_code == 200
    assert (HEADER in response.headers) is binary


def test_json_and_binary_tensors_can_be_mixed(client: Client) -> None:
    words = pack_elements(b"a", b"")
    body = {
        "inputs": [
            tensor("BYTES", [2], len(words), "words"),
            {"name": "numbers", "datatype": "INT64", "shape": [1], "data": [2**62 + 1]},
        ],
        "outputs": [{"name": "numbers", "parameters": {"binary_data": True}}, {"name": "words"}],
    }
    answer, (block,) = split_response(post(client, "echo-pair", body, words))
    assert [output["name"] for output in answer["outputs"]] == ["numbers", "words"]
    assert struct.unpack("<q", block) == (2**62 + 1,)
    assert answer["outputs"][1]["data"] == ["a", ""]


def test_blocks_follow_the_order_of_inputs_and_outputs(client: Client) -> None:
    numbers, words = struct.pack("<2q", -5, 7), pack_elements(b"x", b"yz")
    body = {
        "inputs": [tensor("BYTES", [2], len(words), "words"), tensor("INT64", [2], len(numbers), "numbers")],
        "parameters": {"binary_data_output": True},
    }
    _, blocks = split_response(post(client, "echo-pair", body, words, numbers))
    assert blocks == [numbers, words], "outputs are in the order of the model"


def test_binary_pixels_are_accepted(client: Client) -> None:
    pixels = np.stack([rectangle(), rectangle(colour=(0, 0, 255))])
    body = {
        "inputs": [tensor("UINT8", [*pixels.shape], pixels.nbytes, "image")],
        "outputs": [{"name": "labels", "parameters": {"binary_data": True}}, {"name": "boxes"}],
    }
    answer, (block,) = split_response(post(client, "detector", body, pixels.tobytes()))
    assert unpack_elements(block) == [b"red", b"blue"]
    assert answer["outputs"][1]["data"] == [10, 8, 30, 40] * 2


def test_raw_body_can_be_one_image(client: Client) -> None:
    answer, (block,) = split_response(raw(client, "detector", encode_image(rectangle())))
    assert "id" not in answer
    assert [detection["label"] for detection in json.loads(unpack_elements(block)[0])] == ["red"]


def test_raw_body_can_be_one_tensor(client: Client) -> None:
    assert struct.unpack("<2f", split_response(raw(client, "half_plus_two", ONE_TWO))[1][0]) == (2.5, 3)
    assert unpack_elements(split_response(raw(client, "greeter", "Åsa".encode()))[1][0]) == ["Hello, Åsa!".encode()]
    array_bytes = struct.pack("<6h", *range(6))
    answer, blocks = split_response(raw(client, "echo-fixed", array_bytes))
    assert (answer["outputs"][0]["shape"], blocks) == ([1, 2, 3], [array_bytes])
    assert split_response(raw(client, "echo-scalar", struct.pack("<f", 1.5)))[0]["outputs"][0]["shape"] == []


@pytest.mark.parametrize(
    ("model", "body"),
    [
        ("half_plus_two", b"12345"),
        ("echo-fixed", b"1"),
        ("echo-fixed", bytes(24)),
        ("echo-fixed", b""),
        ("echo-pair", b"12345678"),
        ("echo-scalar", bytes(8)),
        ("echo-deep", b"1"),
        ("echo-bytes", b"ab"),
        ("greeter", b"\xff"),
        ("detector", b""),
        ("detector", b"no image"),
    ],
)
def test_raw_body_that_does_not_fit_the_input_is_rejected(client: Client, model: str, body: bytes) -> None:
    error_message(raw(client, model, body))
