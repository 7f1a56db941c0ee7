"""Compare GRPS responses, over REST and gRPC, with V2 responses for the same inputs."""

import base64
import json
from typing import Any

import numpy as np
import pytest
from google.protobuf.json_format import MessageToDict, ParseDict

from app.plugins.grps.proto import message_class
from app.plugins.grps.tensors import ELEMENTS, dtype_name, sent_datatype
from tasks.inference.tensor import Datatype
from tests.conformance.test_agreement import AGREEING, over_json
from tests.support.data.chariot import Client
from tests.support.data.golden import GoldenCase
from tests.support.data.images import encode_image, rectangle
from tests.support.servers.grpc_server import GrpcTestClient

MESSAGE: Any = message_class("grps.protos.v1.GrpsMessage")
PREDICT = "/grps/v1/infer/predict"
IMAGE_MODELS = ("classifier", "detector", "oriented", "segmenter", "teller")
# GRPS returns all outputs, accepts one image here, and has no integers larger than INT64.
COMPARED_CASES = [
    case
    for case in AGREEING
    if "outputs" not in json.loads(case.files["request.json"])
    and case.name not in ("integers-64-bit", "metadata-of-several-images")
]


def predict(client: Client, peer: GrpcTestClient, body: dict[str, Any]) -> dict[str, Any]:
    """Send a message over REST and gRPC, and return the response, which must be the same."""
    response = client.post(PREDICT, json=body)
    assert response.status_code == 200, response.text
    data = ParseDict(body, MESSAGE()).SerializeToString()
    over_grpc = MESSAGE.FromString(peer.call_bytes("/grps.protos.v1.GrpsService/Predict", data))
    assert ParseDict(response.json(), MESSAGE()) == over_grpc
    return MessageToDict(over_grpc, preserving_proto_field_name=True)


def generic_tensor(tensor: dict[str, Any]) -> dict[str, Any]:
    """Convert a V2 tensor to a GRPS tensor."""
    datatype = Datatype(tensor["datatype"])
    field = ELEMENTS.names[sent_datatype(datatype)]
    flat = np.array(tensor["data"], object).ravel().tolist()
    return {"name": tensor["name"], "dtype": dtype_name(datatype), "shape": tensor["shape"], field: flat}


def tensors_of(answer: dict[str, Any]) -> dict[str, tuple[list[int], list[Any]]]:
    """Return shape and elements of each output tensor, by name."""
    tensors: dict[str, tuple[list[int], list[Any]]] = {}
    for tensor in answer["gtensors"]["tensors"]:
        field = next((name for name in tensor if name.startswith("flat_")), "flat_int8")
        values = tensor.get(field, [])
        tensors[tensor["name"]] = tensor.get("shape", []), list(map(int, values)) if field == "flat_int64" else values
    return tensors


@pytest.mark.parametrize("case", COMPARED_CASES, ids=lambda case: case.name)
def test_grps_answers_wire_cases_as_v2(kserve: Client, peer: GrpcTestClient, case: GoldenCase) -> None:
    settings = case.settings
    request = json.loads(case.files["request.json"])
    (model,) = settings["models"]
    expected = over_json(kserve, settings["path"], request)
    body = {"model": model, "gtensors": {"tensors": [generic_tensor(tensor) for tensor in request["inputs"]]}}
    if "predictions" in expected:
        (image,) = request["inputs"][0]["data"]
        by_name = {"model": model, "gmap": {"s_b": {"a": image}}}
        (records,) = expected["predictions"][2]
        assert json.loads(predict(kserve, peer, by_name)["gmap"]["s_s"]["a"]) == json.loads(records)
        expected = over_json(kserve, settings["path"], {**request, "parameters": {"output_format": "tensors"}})
    actual = tensors_of(predict(kserve, peer, body))
    assert set(actual) == set(expected)
    for name, (_, shape, data) in expected.items():
        assert actual[name][0] == shape
        assert actual[name][1] == (pytest.approx(data, abs=1e-6) if data and isinstance(data[0], float) else data)


@pytest.mark.parametrize("model", IMAGE_MODELS)
def test_every_image_encoding_gets_same_records(kserve: Client, peer: GrpcTestClient, model: str) -> None:
    pixels = rectangle(40, 30, (4, 5, 20, 21), (0, 255, 0))
    image = base64.b64encode(encode_image(pixels)).decode()
    v2_request = {"inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [image]}]}
    (records,) = over_json(kserve, f"/v2/models/{model}/infer", v2_request)["predictions"][2]
    assert json.loads(predict(kserve, peer, {"model": model, "str_data": image})["str_data"]) == json.loads(records)
    http_response = kserve.post(
        f"{PREDICT}?model={model}-1", content=encode_image(pixels), headers={"content-type": "application/octet-stream"}
    )
    assert json.loads(http_response.json()["str_data"]) == json.loads(records)
    data = MESSAGE(model=model, bin_data=encode_image(pixels)).SerializeToString()
    response = MESSAGE.FromString(peer.call_bytes("/grps.protos.v1.GrpsService/Predict", data))
    assert json.loads(response.str_data) == json.loads(records)
    for tensor in (
        {"dtype": "DT_UINT8", "shape": [30, 40, 3], "flat_uint8": pixels.ravel().tolist()},
        {"dtype": "DT_STRING", "shape": [1], "flat_string": [image]},
    ):
        actual = tensors_of(predict(kserve, peer, {"model": model, "gtensors": {"tensors": [tensor]}}))
        expected = over_json(
            kserve, f"/v2/models/{model}/infer", {**v2_request, "parameters": {"output_format": "tensors"}}
        )
        assert {name: output[0] for name, output in actual.items()} == {
            name: output[1] for name, output in expected.items()
        }
