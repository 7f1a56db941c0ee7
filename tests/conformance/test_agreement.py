"""Compare V2 responses over JSON, the binary extension, and gRPC contents."""

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from litestar.testing import TestClient
from numpy.typing import NDArray

from tasks.inference.tensor import Datatype
from tests.support.data.chariot import Client
from tests.support.data.golden import CASES, HEADER_LENGTH, GoldenCase
from tests.support.data.requests import pack_elements, unpack_elements
from tests.support.servers.apps import ALL_MODELS, app_with_models, load_test_model, model_source
from tests.support.servers.grpc_server import (
    GrpcTestClient,
    build_engine_from_sources,
    message,
    run_grpc_server,
)

CONTENTS_FIELDS = {
    "BYTES": "bytes_contents",
    "FP32": "fp32_contents",
    "UINT64": "uint64_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
}

AGREEING = [
    case
    for case in CASES
    if case.protocol == "kserve-v2"
    and not case.name.startswith("error-")
    # The first requests binary outputs; the second marks base64, which only JSON has.
    and case.name not in ("empty-tensor-binary", "tensor-bytes-base64")
    and {name for name in case.files if name.startswith("request.")} == {"request.json"}
]


@pytest.fixture(scope="module")
def kserve() -> Iterator[Client]:
    with TestClient(app_with_models(ALL_MODELS)) as client:
        yield client


@pytest.fixture(scope="module")
def peer() -> Iterator[GrpcTestClient]:
    sources = [model_source(name) for name in ALL_MODELS]
    with run_grpc_server(build_engine_from_sources(sources, load_test_model)) as peer:
        yield peer


Outputs = dict[str, tuple[str, list[int], list[Any]]]


def pack_tensor(tensor: dict[str, Any]) -> bytes:
    """Return the raw bytes of a JSON input."""
    if tensor["datatype"] == "BYTES":
        return pack_elements(*(text.encode() for text in tensor["data"]))
    return np.array(tensor["data"], Datatype(tensor["datatype"]).dtype).tobytes()


def unpack_tensor(datatype: str, block: bytes) -> list[Any]:
    """Return the elements of raw bytes as JSON values."""
    if datatype == "BYTES":
        return [element.decode() for element in unpack_elements(block)]
    array: NDArray[Any] = np.frombuffer(block, Datatype(datatype).dtype)
    return array.tolist()


def over_json(client: Client, path: str, request: dict[str, Any]) -> Outputs:
    response = client.post(path, json=request).json()
    return {output["name"]: (output["datatype"], output["shape"], output["data"]) for output in response["outputs"]}


def over_binary(client: Client, path: str, request: dict[str, Any]) -> Outputs:
    blocks = [pack_tensor(tensor) for tensor in request["inputs"]]
    inputs: list[dict[str, Any]] = []
    for tensor, block in zip(request["inputs"], blocks, strict=True):
        parameters = {**tensor.get("parameters", {}), "binary_data_size": len(block)}
        inputs.append({**{key: tensor[key] for key in ("name", "shape", "datatype")}, "parameters": parameters})
    body: dict[str, Any] = {**request, "inputs": inputs}
    body["parameters"] = {**request.get("parameters", {}), "binary_data_output": True}
    body["outputs"] = [
        {**output, "parameters": {**output.get("parameters", {}), "binary_data": True}}
        for output in request.get("outputs", [])
    ]
    head = json.dumps(body).encode()
    response = client.post(path, content=head + b"".join(blocks), headers={HEADER_LENGTH: str(len(head))})
    # A response without binary data has no such header.
    length = int(response.headers.get(HEADER_LENGTH, len(response.content)))
    remaining, outputs = response.content[length:], Outputs()
    for output in json.loads(response.content[:length])["outputs"]:
        size: int = output["parameters"]["binary_data_size"]
        outputs[output["name"]] = (
            output["datatype"],
            output["shape"],
            unpack_tensor(output["datatype"], remaining[:size]),
        )
        remaining = remaining[size:]
    return outputs


def over_grpc(peer: GrpcTestClient, model: str, request: dict[str, Any], *, raw: bool) -> Outputs:
    message_request = message("ModelInferRequest", model_name=model)
    for item in request["inputs"]:
        tensor = message_request.inputs.add(name=item["name"], datatype=item["datatype"], shape=item["shape"])
        if raw:
            message_request.raw_input_contents.append(pack_tensor(item))
        else:
            flat = np.array(item["data"], object).ravel().tolist()
            values = [value.encode() if isinstance(value, str) else value for value in flat]
            getattr(tensor.contents, CONTENTS_FIELDS[item["datatype"]]).extend(values)
    for requested in request.get("outputs", []):
        requested_output = message_request.outputs.add(name=requested["name"])
        for key, value in requested.get("parameters", {}).items():
            requested_output.parameters[key].int64_param = value
    for key, value in request.get("parameters", {}).items():
        setattr(message_request.parameters[key], "int64_param" if isinstance(value, int) else "string_param", value)
    response = peer.call("ModelInfer", message_request)
    outputs = Outputs()
    for index, output in enumerate(response.outputs):
        if response.raw_output_contents:
            data = unpack_tensor(output.datatype, response.raw_output_contents[index])
        else:
            contents: list[Any] = list(getattr(output.contents, CONTENTS_FIELDS[output.datatype]))
            data = [value.decode() if isinstance(value, bytes) else value for value in contents]
        outputs[output.name] = (output.datatype, list(output.shape), data)
    return outputs


@pytest.mark.parametrize("case", AGREEING, ids=lambda case: case.name)
def test_all_encodings_return_same_outputs(kserve: Client, peer: GrpcTestClient, case: GoldenCase) -> None:
    settings = case.settings
    request = json.loads(case.files["request.json"])
    (model,) = settings["models"]
    expected = over_json(kserve, settings["path"], request)
    assert expected
    assert over_binary(kserve, settings["path"], request) == expected
    assert over_grpc(peer, model, request, raw=True) == expected
    assert over_grpc(peer, model, request, raw=False) == expected
