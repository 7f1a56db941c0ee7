"""Test the Open Inference Protocol over REST: server, models and outputs, besides its golden cases."""

import json
import struct
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from litestar.testing import TestClient

from app import __version__
from tasks.inference.tensor import Datatype, TensorSpec
from tests.core.protocols.kserve_v2.test_grpc_codec import VALUES
from tests.support.data.chariot import IMAGE, Client, image_input
from tests.support.servers.apps import ALL_MODELS, ECHO_MODELS, app_with_models


def infer(client: Client, model: str, body: dict[str, Any]) -> dict[str, Any]:
    """Send a V2 request and return the response."""
    response = client.post(f"/v2/models/{model}/infer", json=body)
    assert response.status_code == 200, response.text
    return response.json()


def outputs_by_name(answer: dict[str, Any]) -> dict[str, tuple[str, list[int], list[Any]]]:
    """Return datatype, shape and data of each output by name."""
    return {output["name"]: (output["datatype"], output["shape"], output["data"]) for output in answer["outputs"]}


def test_server_metadata_has_name_version_and_extensions(client: Client) -> None:
    for path in ("/v2", "/v2/"):
        metadata = client.get(path).json()
        assert metadata["name"] == "charioteer"
        assert metadata["version"] == __version__
        assert {"binary_tensor_data", "classification", "parameters"} <= {*metadata["extensions"]}


def test_server_is_live_and_ready_and_lists_models(client: Client) -> None:
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json() == {"ready": True}
    for path in ("/v2/models/detector/ready", "/v2/models/detector/versions/1/ready"):
        assert client.get(path).json() == {"name": "detector", "ready": True}
    assert client.get("/v2/models").json() == {"models": sorted(ALL_MODELS)}


@pytest.mark.parametrize("model", ["classifier", "detector", "half_plus_two", "teller"])
def test_metadata_matches_real_inputs_and_outputs(client: Client, model: str) -> None:
    metadata = client.get(f"/v2/models/{model}").json()
    (input_spec,) = metadata["inputs"]
    data, shape = ([IMAGE], [1]) if input_spec["datatype"] == "BYTES" else ([1.0], [1])
    tensor = {"name": input_spec["name"], "datatype": input_spec["datatype"], "shape": shape, "data": data}
    requested_outputs = [{"name": output["name"]} for output in metadata["outputs"]]
    answer = infer(client, model, {"inputs": [tensor], "outputs": requested_outputs})
    assert [output["name"] for output in answer["outputs"]] == [output["name"] for output in metadata["outputs"]]
    for actual, declared in zip(answer["outputs"], metadata["outputs"], strict=True):
        assert actual["datatype"] == declared["datatype"]
        assert len(actual["shape"]) == len(declared["shape"])
        assert all(
            size in (-1, actual_size) for size, actual_size in zip(declared["shape"], actual["shape"], strict=True)
        )


@pytest.mark.parametrize("method", ["GET /v2/models/{}", "GET /v2/models/{}/ready", "POST /v2/models/{}/infer"])
@pytest.mark.parametrize("target", ["missing", "detector/versions/2", "detector/versions/x", "%20", "..%2fetc"])
def test_unknown_model_or_version_returns_404(client: Client, method: str, target: str) -> None:
    verb, path = method.split(" ")
    response = client.request(verb, path.format(target), json={"inputs": [image_input()]})
    assert response.status_code == 404
    assert list(response.json()) == ["error"]


def test_outputs_of_a_tensor_model_that_are_called_labels_name_no_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [TensorSpec(name=name, datatype=Datatype.INT64, shape=(-1,)) for name in ("scores", "labels", "class_ids")]
    monkeypatch.setitem(ECHO_MODELS, "echo-scores", specs)
    inputs = [{"name": spec.name, "datatype": "INT64", "shape": [2], "data": [5, 7]} for spec in specs]
    body = {"inputs": inputs, "outputs": [{"name": "scores", "parameters": {"classification": 2}}]}
    with TestClient(app_with_models(("echo-scores",))) as client:
        assert outputs_by_name(infer(client, "echo-scores", body)) == {"scores": ("BYTES", [2], ["7:1", "5:0"])}


def test_classification_of_few_classes_and_of_empty_and_integer_outputs(client: Client) -> None:
    requested_outputs = [{"name": "scores", "parameters": {"classification": 9}}]
    few = infer(client, "classifier", {"inputs": [image_input()], "outputs": requested_outputs})
    assert outputs_by_name(few)["scores"][1] == [1, 3]
    no_detections = infer(
        client, "detector", {"inputs": [image_input(score_threshold=0.95)], "outputs": requested_outputs}
    )
    assert outputs_by_name(no_detections) == {"scores": ("BYTES", [1, 0], [])}
    requested_outputs = [{"name": "num_detections", "parameters": {"classification": 2}}]
    counts = infer(client, "detector", {"inputs": [image_input([IMAGE] * 3)], "outputs": requested_outputs})
    assert outputs_by_name(counts) == {"num_detections": ("BYTES", [2], ["1:0", "1:1"])}


def echo_data(client: Client, datatype: str, shape: list[int], data: object) -> Any:
    """Return the flat data that the model returns."""
    tensor = {"name": "x", "datatype": datatype, "shape": shape, "data": data}
    (output,) = infer(client, f"echo-{datatype.lower()}", {"inputs": [tensor]})["outputs"]
    assert (output["name"], output["datatype"], output["shape"]) == ("x", datatype, shape)
    return output["data"]


@pytest.mark.parametrize("datatype", VALUES)
def test_extreme_values_round_trip(client: Client, datatype: str) -> None:
    data = VALUES[datatype]
    result = echo_data(client, datatype, [1, 3], data)
    assert result == data
    assert [type(value) for value in result] == [type(value) for value in data]
    assert echo_data(client, datatype, [3, 1], [[value] for value in data]) == data, "nested rows"
    assert echo_data(client, datatype, [0, 2], []) == []


# Bad input

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
