"""The binary tensor extension of the Open Inference Protocol over REST, both ways."""

import json
import struct
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient
from numpy.typing import NDArray

from tasks.exchange.tensor import Datatype
from tests.support.chariot import PICTURE, Client, image_input
from tests.support.pictures import encoded, rectangle
from tests.support.served import ECHOES, TENSOR_FIXTURES, build

HEADER = "inference-header-content-length"
ONE_TWO = struct.pack("<2f", 1, 2)

EXTREMES: dict[str, list[Any]] = {
    **{each: [np.iinfo(each.dtype).min, np.iinfo(each.dtype).max] for each in Datatype if each.kind in "ui"},
    **{each: [np.nan, -np.inf, -0.0, np.finfo(each.dtype).max] for each in Datatype if each.dtype.kind == "f"},
    "BF16": [0x3F80, 0x7F80, 0xFFFF],
    "BOOL": [True, False],
}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Litestar]]:
    with TestClient(build(("classifier", "detector", "teller", *ECHOES, *TENSOR_FIXTURES))) as client:
        yield client


def tensor(datatype: str, shape: list[int], size: object, name: str = "x") -> dict[str, Any]:
    """An input whose data follow the JSON."""
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}


def post(
    client: Client, model: str, body: dict[str, Any], *blocks: bytes, length: str | None = None, version: str = ""
) -> httpx.Response:
    """A request with its tensors behind the JSON."""
    head = json.dumps(body).encode()
    headers = {HEADER: str(len(head)) if length is None else length}
    return client.post(f"/v2/models/{model}{version}/infer", content=head + b"".join(blocks), headers=headers)


def raw(client: Client, model: str, body: bytes) -> httpx.Response:
    """A request that is one tensor and nothing else."""
    return client.post(f"/v2/models/{model}/infer", content=body, headers={HEADER: "0"})


def refused(response: httpx.Response) -> str:
    """The sentence with which a request is refused."""
    assert response.status_code == 400, response.text
    assert list(response.json()) == ["error"]
    return response.json()["error"]


def opened(response: httpx.Response) -> tuple[dict[str, Any], list[bytes]]:
    """The JSON of an answer, and a block of bytes for each output that has one."""
    assert response.status_code == 200, response.text
    length = int(response.headers[HEADER])
    assert response.headers["content-type"] == "application/octet-stream"
    answer: dict[str, Any] = json.loads(response.content[:length])
    blocks: list[bytes] = []
    rest = response.content[length:]
    for output in answer["outputs"]:
        size: int | None = output.get("parameters", {}).get("binary_data_size")
        assert (size is None) == ("data" in output)
        if size is not None:
            blocks.append(rest[:size])
            rest = rest[size:]
    assert rest == b""
    return answer, blocks


def elements(block: bytes) -> list[bytes]:
    """The elements of a BYTES block."""
    found: list[bytes] = []
    while block:
        (size,) = struct.unpack_from("<I", block)
        found.append(block[4 : 4 + size])
        block = block[4 + size :]
    return found


def packed(*texts: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(each)) + each for each in texts)


@pytest.mark.parametrize("datatype", EXTREMES)
def test_numbers_come_back_bit_for_bit(client: Client, datatype: str) -> None:
    array: NDArray[Any] = np.array([EXTREMES[datatype]], Datatype(datatype).dtype)
    body = {
        "inputs": [tensor(datatype, [*array.shape], array.nbytes)],
        "outputs": [{"name": "x", "parameters": {"binary_data": True}}],
    }
    answer, (block,) = opened(post(client, f"echo-{datatype.lower()}", body, array.tobytes()))
    assert block == array.tobytes()
    (output,) = answer["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("x", datatype, [*array.shape])


def test_texts_come_back(client: Client) -> None:
    block = packed(b"", "\N{GRINNING FACE} ok".encode(), b"a" * 300)
    body = {"inputs": [tensor("BYTES", [3, 1], len(block))], "parameters": {"binary_data_output": True}}
    answer, blocks = opened(post(client, "echo-bytes", body, block))
    assert blocks == [block]
    assert answer["outputs"][0]["shape"] == [3, 1]


def test_binary_in_and_json_out_and_the_other_way(client: Client) -> None:
    body = {"inputs": [tensor("FP32", [2], 8)]}
    response = post(client, "half_plus_two", body, ONE_TWO)
    assert HEADER not in response.headers
    assert response.json()["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [2], "data": [2.5, 3.0]}]
    given = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}
    body = {"id": "5", "inputs": [given], "parameters": {"binary_data_output": True}}
    answer, (block,) = opened(client.post("/v2/models/half_plus_two/versions/1/infer", json=body))
    assert struct.unpack("<2f", block) == (2.5, 3)
    assert (answer["id"], answer["model_name"], answer["model_version"]) == ("5", "half_plus_two", "1")


def test_the_header_on_a_body_that_is_all_json(client: Client) -> None:
    given = {"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}
    assert post(client, "half_plus_two", {"inputs": [given]}).json()["outputs"][0]["data"] == [2.5, 3.0]


@pytest.mark.parametrize(
    ("of_request", "of_output", "binary"),
    [
        (None, None, False),
        (True, None, False),
        (True, False, False),
        (True, True, True),
        (False, True, True),
        (None, True, True),
    ],
)
def test_an_output_that_is_named_goes_by_its_own_parameter(
    client: Client, of_request: bool | None, of_output: bool | None, binary: bool
) -> None:
    body: dict[str, Any] = {"inputs": [tensor("FP32", [2], 8)], "outputs": [{"name": "y"}]}
    if of_request is not None:
        body["parameters"] = {"binary_data_output": of_request}
    if of_output is not None:
        body["outputs"][0]["parameters"] = {"binary_data": of_output}
    response = post(client, "half_plus_two", body, ONE_TWO)
    assert response.status_code == 200
    assert (HEADER in response.headers) is binary


def test_data_here_and_bytes_there(client: Client) -> None:
    words = packed(b"a", b"")
    body = {
        "inputs": [
            tensor("BYTES", [2], len(words), "words"),
            {"name": "numbers", "datatype": "INT64", "shape": [1], "data": [2**62 + 1]},
        ],
        "outputs": [{"name": "numbers", "parameters": {"binary_data": True}}, {"name": "words"}],
    }
    answer, (block,) = opened(post(client, "echo-pair", body, words))
    assert [each["name"] for each in answer["outputs"]] == ["numbers", "words"]
    assert struct.unpack("<q", block) == (2**62 + 1,)
    assert answer["outputs"][1]["data"] == ["a", ""]


def test_blocks_come_in_the_order_of_the_inputs(client: Client) -> None:
    numbers, words = struct.pack("<2q", -5, 7), packed(b"x", b"yz")
    body = {
        "inputs": [tensor("BYTES", [2], len(words), "words"), tensor("INT64", [2], len(numbers), "numbers")],
        "parameters": {"binary_data_output": True},
    }
    _, blocks = opened(post(client, "echo-pair", body, words, numbers))
    assert blocks == [numbers, words], "outputs are in the order of the model"


def test_nothing_in_every_block_is_json_alone(client: Client) -> None:
    body = {"inputs": [tensor("FP32", [0], 0)], "parameters": {"binary_data_output": True}}
    response = post(client, "half_plus_two", body)
    assert HEADER not in response.headers
    (output,) = response.json()["outputs"]
    assert (output["shape"], output.get("parameters", {}).get("binary_data_size", 0)) == ([0], 0)


@pytest.mark.parametrize("wrapped", [False, True], ids=["file", "base64"])
def test_images_as_files_and_as_text(client: Client, wrapped: bool) -> None:
    block = packed(PICTURE.encode() if wrapped else encoded(rectangle()))
    given = tensor("BYTES", [1], len(block), "image")
    body = {"inputs": [given], "parameters": {"binary_data_output": True}}
    answer, (block,) = opened(post(client, "detector", body, block))
    assert [each["name"] for each in answer["outputs"]] == ["predictions"]
    assert [each["label"] for each in json.loads(elements(block)[0])] == ["red"]


def test_pixels(client: Client) -> None:
    pixels = np.stack([rectangle(), rectangle(colour=(0, 0, 255))])
    body = {
        "inputs": [tensor("UINT8", [*pixels.shape], pixels.nbytes, "image")],
        "outputs": [{"name": "labels", "parameters": {"binary_data": True}}, {"name": "boxes"}],
    }
    answer, (block,) = opened(post(client, "detector", body, pixels.tobytes()))
    assert elements(block) == [b"red", b"blue"]
    assert answer["outputs"][1]["data"] == [10, 8, 30, 40] * 2


def test_classification_as_bytes(client: Client) -> None:
    wanted = [{"name": "scores", "parameters": {"classification": 1, "binary_data": True}}]
    response = client.post("/v2/models/classifier/infer", json={"inputs": [image_input()], "outputs": wanted})
    _, (block,) = opened(response)
    assert elements(block) == [b"1.000000:0:red"]


def test_a_body_that_is_one_image(client: Client) -> None:
    answer, (block,) = opened(raw(client, "detector", encoded(rectangle())))
    assert "id" not in answer
    assert [each["label"] for each in json.loads(elements(block)[0])] == ["red"]


def test_a_body_that_is_one_tensor(client: Client) -> None:
    assert struct.unpack("<2f", opened(raw(client, "half_plus_two", ONE_TWO))[1][0]) == (2.5, 3)
    assert elements(opened(raw(client, "greeter", "Åsa".encode()))[1][0]) == ["Hello, Åsa!".encode()]
    six = struct.pack("<6h", *range(6))
    answer, blocks = opened(raw(client, "echo-fixed", six))
    assert (answer["outputs"][0]["shape"], blocks) == ([1, 2, 3], [six])
    assert opened(raw(client, "echo-scalar", struct.pack("<f", 1.5)))[0]["outputs"][0]["shape"] == []


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
def test_a_body_that_is_no_such_tensor(client: Client, model: str, body: bytes) -> None:
    refused(raw(client, model, body))
