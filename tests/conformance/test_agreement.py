"""The golden V2 cases say the same over JSON, the binary extension, gRPC's typed contents and its raw ones."""

import json
import struct
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient
from numpy.typing import NDArray

from tasks.exchange.tensor import Datatype
from tasks.vision.image import decode_image
from tests.conformance.test_wire import CASES, HEADER_LENGTH
from tests.support.grpc_server import Peer, message, over, serving_grpc
from tests.support.pictures import base64_text, encoded, rectangle
from tests.support.served import ECHOES, EVERYTHING, TENSOR_FIXTURES, build, load_any, source

TYPED = {
    "BYTES": "bytes_contents",
    "FP32": "fp32_contents",
    "UINT64": "uint64_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
}

AGREEING = [
    case
    for case in CASES
    if case.parent.name == "kserve-v2"
    and not case.name.startswith("error-")
    # The first asks for binary outputs, the second marks base64 that only JSON has.
    and case.name not in ("empty-tensor-binary", "tensor-bytes-base64")
    and {each.name for each in case.glob("request.*")} == {"request.json"}
]

Found = dict[str, tuple[str, list[int], list[Any]]]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient[Litestar]]:
    with TestClient(build(EVERYTHING)) as client:
        yield client


@pytest.fixture(scope="module")
def tensorflow() -> Iterator[TestClient[Litestar]]:
    with TestClient(build(EVERYTHING, "tensorflow-serving")) as client:
        yield client


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with serving_grpc(over([source(name) for name in EVERYTHING], load_any)) as peer:
        yield peer


def packed(tensor: dict[str, Any]) -> bytes:
    """The bytes of a JSON input."""
    if tensor["datatype"] == "BYTES":
        elements = [each.encode() for each in tensor["data"]]
        return b"".join(struct.pack("<I", len(each)) + each for each in elements)
    return np.array(tensor["data"], Datatype(tensor["datatype"]).dtype).tobytes()


def unpacked(datatype: str, block: bytes) -> list[Any]:
    """The elements of a block, as JSON has them."""
    if datatype != "BYTES":
        array: NDArray[Any] = np.frombuffer(block, Datatype(datatype).dtype)
        return array.tolist()
    found: list[str] = []
    while block:
        (size,) = struct.unpack_from("<I", block)
        found.append(block[4 : 4 + size].decode())
        block = block[4 + size :]
    return found


def over_json(client: TestClient[Litestar], path: str, request: dict[str, Any]) -> Found:
    answer = client.post(path, json=request).json()
    return {each["name"]: (each["datatype"], each["shape"], each["data"]) for each in answer["outputs"]}


def over_binary(client: TestClient[Litestar], path: str, request: dict[str, Any]) -> Found:
    blocks = [packed(each) for each in request["inputs"]]
    inputs: list[dict[str, Any]] = []
    for each, block in zip(request["inputs"], blocks, strict=True):
        parameters = {**each.get("parameters", {}), "binary_data_size": len(block)}
        inputs.append({**{key: each[key] for key in ("name", "shape", "datatype")}, "parameters": parameters})
    body: dict[str, Any] = {**request, "inputs": inputs}
    body["parameters"] = {**request.get("parameters", {}), "binary_data_output": True}
    body["outputs"] = [
        {**each, "parameters": {**each.get("parameters", {}), "binary_data": True}}
        for each in request.get("outputs", [])
    ]
    head = json.dumps(body).encode()
    response = client.post(path, content=head + b"".join(blocks), headers={HEADER_LENGTH: str(len(head))})
    # An answer without binary bytes has no such header.
    length = int(response.headers.get(HEADER_LENGTH, len(response.content)))
    rest, found = response.content[length:], Found()
    for each in json.loads(response.content[:length])["outputs"]:
        size: int = each["parameters"]["binary_data_size"]
        found[each["name"]] = (each["datatype"], each["shape"], unpacked(each["datatype"], rest[:size]))
        rest = rest[size:]
    return found


def over_grpc(peer: Peer, model: str, request: dict[str, Any], *, raw: bool) -> Found:
    asked = message("ModelInferRequest", model_name=model)
    for each in request["inputs"]:
        tensor = asked.inputs.add(name=each["name"], datatype=each["datatype"], shape=each["shape"])
        if raw:
            asked.raw_input_contents.append(packed(each))
        else:
            flat = np.array(each["data"], object).ravel().tolist()
            values = [value.encode() if isinstance(value, str) else value for value in flat]
            getattr(tensor.contents, TYPED[each["datatype"]]).extend(values)
    for each in request.get("outputs", []):
        output = asked.outputs.add(name=each["name"])
        for key, value in each.get("parameters", {}).items():
            output.parameters[key].int64_param = value
    for key, value in request.get("parameters", {}).items():
        setattr(asked.parameters[key], "int64_param" if isinstance(value, int) else "string_param", value)
    answer = peer.call("ModelInfer", asked)
    found = Found()
    for index, each in enumerate(answer.outputs):
        if answer.raw_output_contents:
            data = unpacked(each.datatype, answer.raw_output_contents[index])
        else:
            contents: list[Any] = list(getattr(each.contents, TYPED[each.datatype]))
            data = [value.decode() if isinstance(value, bytes) else value for value in contents]
        found[each.name] = (each.datatype, list(each.shape), data)
    return found


@pytest.mark.parametrize("case", AGREEING, ids=lambda case: case.name)
def test_every_wire_says_the_same(client: TestClient[Litestar], peer: Peer, case: Path) -> None:
    told = tomllib.loads((case / "case.toml").read_text())
    request = json.loads((case / "request.json").read_text())
    (model,) = told["models"]
    expected = over_json(client, told["path"], request)
    assert expected
    assert over_binary(client, told["path"], request) == expected
    assert over_grpc(peer, model, request, raw=True) == expected
    assert over_grpc(peer, model, request, raw=False) == expected


PICTURES = [encoded(rectangle(80, 60, (5, 6, 40, 50), colour)) for colour in ((255, 0, 0), (0, 0, 255), (40, 220, 90))]


@pytest.mark.parametrize("model", ["classifier", "detector", "oriented", "segmenter", "teller"])
def test_v1_and_v2_find_the_same_in_the_same_images(client: TestClient[Litestar], model: str) -> None:
    pictures = [base64_text(each) for each in PICTURES]
    image = {"name": "image", "datatype": "BYTES", "shape": [len(pictures)], "data": pictures}
    over_v2 = over_json(client, f"/v2/models/{model}/infer", {"inputs": [image]})
    found = client.post(f"/v1/models/{model}:predict", json={"instances": pictures}).json()["predictions"]
    assert found == [json.loads(each) for each in over_v2["predictions"][2]]
    assert all(found)
    for picture, expected in zip(PICTURES, found, strict=True):
        path, headers = f"/v1/models/{model}:predict", {"content-type": "image/png"}
        assert client.post(path, content=picture, headers=headers).json() == {"predictions": [expected]}
        body = {"inputs": [{"image": decode_image(picture).pixels.tolist()}]}
        assert client.post(path, json=body).json() == {"predictions": [expected]}


TEXTS = ["red, green and red", "nothing", "blue", "", "Grün is green"]


@pytest.mark.parametrize("model", ["sorter", "tagger", "continuer"])
def test_v1_and_v2_find_the_same_in_the_same_texts(client: TestClient[Litestar], model: str) -> None:
    texts = {"name": "args", "datatype": "BYTES", "shape": [len(TEXTS)], "data": TEXTS}
    over_v2 = over_json(client, f"/v2/models/{model}/infer", {"inputs": [texts]})
    expected = [json.loads(each) for each in over_v2["predictions"][2]]
    assert any(expected)
    as_bytes = [{"b64": base64_text(each.encode())} for each in TEXTS]
    for instances in (TEXTS, as_bytes, [{"text": each} for each in TEXTS], [{"args": each} for each in as_bytes]):
        found = client.post(f"/v1/models/{model}:predict", json={"instances": instances})
        assert found.status_code == 200, found.text
        assert found.json() == {"predictions": expected}


@pytest.mark.parametrize("model", ["sorter", "tagger", "continuer"])
def test_tensorflow_serving_and_v2_find_the_same_in_the_same_texts(
    client: TestClient[Litestar], tensorflow: TestClient[Litestar], model: str
) -> None:
    texts = {"name": "args", "datatype": "BYTES", "shape": [len(TEXTS)], "data": TEXTS}
    request = {"inputs": [texts], "parameters": {"output_format": "tensors"}}
    outputs = client.post(f"/v2/models/{model}/infer", json=request).json()["outputs"]
    expected = {each["name"]: np.array(each["data"], object).reshape(each["shape"]).tolist() for each in outputs}
    lone = len(expected) == 1
    for body in ({"inputs": TEXTS}, {"inputs": {"args": TEXTS}}, {"inputs": {"text": TEXTS}}):
        columns = tensorflow.post(f"/v1/models/{model}:predict", json=body).json()["outputs"]
        assert_close({next(iter(expected)): columns} if lone else columns, expected)
    for body in ({"instances": TEXTS}, {"instances": [{"text": each} for each in TEXTS]}):
        rows = tensorflow.post(f"/v1/models/{model}:predict", json=body).json()["predictions"]
        assert len(rows) == len(TEXTS)
        assert_close({name: rows if lone else [row[name] for row in rows] for name in expected}, expected)


@pytest.mark.parametrize("name", ["text", "args"])
def test_classes_of_texts_are_those_of_v1(
    client: TestClient[Litestar], tensorflow: TestClient[Litestar], name: str
) -> None:
    expected = client.post("/v1/models/sorter:predict", json={"instances": TEXTS}).json()["predictions"]
    body = {"examples": [{name: each} for each in TEXTS]}
    found = tensorflow.post("/v1/models/sorter:classify", json=body).json()["results"]
    assert [[label for label, _ in pairs] for pairs in found] == [[each["label"] for each in row] for row in expected]
    assert [[score for _, score in pairs] for pairs in found] == [
        pytest.approx([each["score"] for each in row], abs=1e-6) for row in expected
    ]


def assert_close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """The same tensors, in one order; V2 writes 32-bit numbers with the digits of 64 bits."""
    assert list(found) == list(expected)
    for name, data in expected.items():
        one, other = np.array(found[name]), np.array(data)
        assert one.shape == other.shape, name
        if one.dtype.kind == "f":
            assert np.array_equal(one.astype(np.float32), other.astype(np.float32)), name
        else:
            assert one.tolist() == other.tolist(), name


# One input has no rows, one more dimensions than JSON is read with.
@pytest.mark.parametrize("model", sorted({*ECHOES, *TENSOR_FIXTURES} - {"echo-scalar", "echo-deep"}))
def test_v1_and_v2_give_the_same_tensors(client: TestClient[Litestar], model: str) -> None:
    about = client.get(f"/v2/models/{model}").json()
    shapes = {each["name"]: [2 if size == -1 else size for size in each["shape"]] for each in about["inputs"]}
    inputs: list[dict[str, Any]] = []
    for each in about["inputs"]:
        count = int(np.prod(shapes[each["name"]]))
        data = [f"text {index}" for index in range(count)] if each["datatype"] == "BYTES" else [1, 0] * (count // 2)
        inputs.append({**each, "shape": shapes[each["name"]], "data": data})
    nested = {each["name"]: np.array(each["data"], object).reshape(each["shape"]).tolist() for each in inputs}
    rows = [dict(zip(nested, row, strict=True)) for row in zip(*nested.values(), strict=True)]
    response = client.post(f"/v1/models/{model}:predict", json={"instances": rows})
    assert response.status_code == 200, response.text
    predictions = response.json()["predictions"]
    if any(each["datatype"] in ("FP16", "BF16") for each in inputs):
        # V2 has no JSON for them.
        assert predictions == nested["x"]
        return
    expected = over_json(client, f"/v2/models/{model}/infer", {"inputs": inputs})
    for name, (_, shape, data) in expected.items():
        rows_of_output = [row[name] for row in predictions] if len(expected) > 1 else predictions
        assert rows_of_output == np.array(data, object).reshape(shape).tolist()
