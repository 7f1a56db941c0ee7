"""Test that the Open Inference Protocol over REST rejects bad input and keeps serving."""

import json
import struct
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.data.chariot import Client

HEADER = "inference-header-content-length"


def one_input(**fields: object) -> dict[str, Any]:
    """Return a request with one tensor and replace the given fields."""
    return {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2], **fields}]}


def assert_rejected(response: httpx.Response, message: str) -> None:
    assert response.status_code == 400, response.text
    assert list(response.json()) == ["error"]
    assert message in response.json()["error"]


def assert_still_serving(client: Client) -> None:
    response = client.post("/v2/models/half_plus_two/infer", json=one_input())
    assert response.json()["outputs"][0]["data"] == [2.5, 3.0]


@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_deeply_nested_data_is_rejected(client: Client, datatype: str) -> None:
    content = json.dumps(one_input(datatype=datatype, data=7)).replace("7", "[" * 2000 + "]" * 2000)
    assert_rejected(client.post("/v2/models/half_plus_two/infer", content=content), "deep")
    assert_still_serving(client)


def binary(size: object = 8, datatype: str = "FP32", shape: object = (2,), name: str = "x") -> dict[str, Any]:
    """Return a request with one tensor whose data follows the JSON."""
    tensor = {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}
    return {"inputs": [tensor]}


BLOCK = struct.pack("<2f", 1, 2)


@pytest.mark.parametrize(
    "length", [b"", b"-1", b"1e3", b"12.0", b"+5", b"0x10", b"\xd9\xa1", b"\xb2", b"9" * 20, b"9" * 5000, 1, -1, 9]
)
def test_invalid_header_length_is_rejected(client: Client, length: bytes | int) -> None:
    """Send a length as it is, or one that differs from that of the JSON by a number."""
    head = json.dumps(binary()).encode()
    header = b"%d" % (len(head) + length) if isinstance(length, int) else length
    response = client.post("/v2/models/half_plus_two/infer", content=head + BLOCK, headers={HEADER.encode(): header})
    # Nine bytes more are beyond the body.
    expected = {1: "", -1: "", 9: "Expected at most"}.get(length if isinstance(length, int) else 0, HEADER.title())
    assert_rejected(response, expected)
    assert_still_serving(client)


def test_binary_data_without_the_header_is_rejected(client: Client) -> None:
    content = json.dumps(binary()).encode() + BLOCK
    assert_rejected(client.post("/v2/models/half_plus_two/infer", content=content), "JSON")


BAD_BINARY: list[tuple[str, str, dict[str, Any], bytes, str]] = [
    ("too few bytes", "half_plus_two", binary(), BLOCK[:-1], "binary_data_size"),
    ("missing bytes", "half_plus_two", binary(), b"", "binary_data_size"),
    ("trailing bytes", "half_plus_two", binary(), BLOCK + b"x", "9"),
    ("negative size", "half_plus_two", binary(-8), BLOCK, "binary_data_size"),
    ("size as text", "half_plus_two", binary("8"), BLOCK, "binary_data_size"),
    ("size as bool", "half_plus_two", binary(True), BLOCK, "binary_data_size"),
    ("size as fraction", "half_plus_two", binary(8.5), BLOCK, "binary_data_size"),
    ("null size", "half_plus_two", binary(None), BLOCK, "binary_data_size"),
    ("huge size", "half_plus_two", binary(2**70), BLOCK, "binary_data_size"),
    ("size does not match shape", "half_plus_two", binary(shape=(3,)), BLOCK, "12 bytes"),
    ("size does not match datatype", "echo-fp64", binary(datatype="FP64", shape=(1, 2)), BLOCK, "16 bytes"),
    ("negative shape", "half_plus_two", binary(shape=(-2,)), BLOCK, "shape"),
    ("two negative sizes", "echo-fp32", binary(shape=(-1, -2)), BLOCK, "shape"),
    ("overflowing shape", "half_plus_two", binary(shape=(2**64,)), BLOCK, "inputs[0]"),
    ("overflowing product of sizes", "echo-fp32", binary(shape=(2**62, 2**62)), BLOCK, "inputs[0]"),
    ("empty tensor with overflowing size", "echo-fp32", binary(0, shape=(0, 2**64)), b"", "inputs[0]"),
    ("empty tensor with overflowing product", "echo-fp32", binary(0, shape=(2**62, 2**62, 0)), b"", "inputs[0]"),
    ("too many dimensions", "echo-deep", binary(1, "INT8", (1,) * 33), b"x", "at most 32"),
    ("unknown datatype", "half_plus_two", binary(datatype="FP8"), BLOCK, "inputs[0].datatype"),
    ("BF16", "half_plus_two", binary(4, "BF16"), BLOCK[:4], "inputs[0]"),
    ("neither 0 nor 1", "echo-bool", binary(2, "BOOL", (1, 2)), b"\x01\x07", "inputs[0].data"),
    ("length past the end", "echo-bytes", binary(6, "BYTES", (1, 1)), b"\x03\0\0\0ab", "inputs[0].data"),
    ("huge length", "echo-bytes", binary(6, "BYTES", (1, 1)), b"\xff\xff\xff\xffab", "inputs[0].data"),
    ("truncated length", "echo-bytes", binary(3, "BYTES", (1, 1)), b"\x01\0\0", "inputs[0].data"),
    ("too few elements", "echo-bytes", binary(5, "BYTES", (1, 2)), b"\x01\0\0\0a", "inputs[0].shape"),
    ("not UTF-8", "echo-bytes", binary(5, "BYTES", (1, 1)), b"\x01\0\0\0\xff", "UTF-8"),
    ("not UTF-8 for a graph", "greeter", binary(5, "BYTES", (1,), "text"), b"\x01\0\0\0\xff", "UTF-8"),
    ("not an image", "detector", binary(5, "BYTES", (1,)), b"\x01\0\0\0a", "inputs[0].data[0]"),
    ("an empty image", "detector", binary(4, "BYTES", (1,)), b"\0\0\0\0", "inputs[0].data[0]"),
    ("NaN pixel", "detector", binary(8, "FP32", (1, 2)), struct.pack("<2f", float("nan"), 1), "inputs[0]"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("model", "body", "blocks", "message"), [case[1:] for case in BAD_BINARY], ids=[case[0] for case in BAD_BINARY]
)
def test_bad_binary_data_is_rejected(
    client: Client, model: str, body: dict[str, Any], blocks: bytes, message: str
) -> None:
    head = json.dumps(body).encode()
    response = client.post(f"/v2/models/{model}/infer", content=head + blocks, headers={HEADER: str(len(head))})
    assert_rejected(response, message)
    assert_still_serving(client)


@given(
    block=st.binary(max_size=40),
    shape=st.lists(st.integers(min_value=-2, max_value=2**65) | st.integers(min_value=0, max_value=3), max_size=4),
    datatype=st.sampled_from(["FP32", "BYTES", "INT64", "BOOL", "FP16"]),
)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_binary_tensor_is_answered_or_rejected(
    client: Client, block: bytes, shape: list[int], datatype: str
) -> None:
    head = json.dumps(binary(len(block), datatype, shape)).encode()
    for model in (f"echo-{datatype.lower()}", "detector"):
        response = client.post(f"/v2/models/{model}/infer", content=head + block, headers={HEADER: str(len(head))})
        assert response.status_code in (200, 400, 413), response.text
