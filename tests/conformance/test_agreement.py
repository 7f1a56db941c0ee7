"""Compare V2 responses over JSON, the binary extension, and gRPC contents; and V1 and Chariot responses with V2."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tasks.inference.tensor import Datatype
from tasks.vision.image import decode_image
from tests.support.data.chariot import Client, image_input, infer, items
from tests.support.data.golden import CASES, HEADER_LENGTH, GoldenCase
from tests.support.data.images import encode_base64, encode_image, rectangle
from tests.support.servers.apps import ECHO_MODELS, TENSOR_FIXTURES
from tests.support.servers.grpc_server import GrpcTestClient, message

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

Outputs = dict[str, tuple[str, list[int], list[Any]]]


def pack_tensor(tensor: dict[str, Any]) -> bytes:
    """Return the raw bytes of a JSON input."""
    if tensor["datatype"] == "BYTES":
        elements = [text.encode() for text in tensor["data"]]
        return b"".join(struct.pack("<I", len(element)) + element for element in elements)
    return np.array(tensor["data"], Datatype(tensor["datatype"]).dtype).tobytes()


def unpack_elements(datatype: str, block: bytes) -> list[Any]:
    """Return the elements of raw bytes as JSON values."""
    if datatype != "BYTES":
        array: NDArray[Any] = np.frombuffer(block, Datatype(datatype).dtype)
        return array.tolist()
    found: list[str] = []
    while block:
        (size,) = struct.unpack_from("<I", block)
        found.append(block[4 : 4 + size].decode())
        block = block[4 + size :]
    return found


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
            unpack_elements(output["datatype"], remaining[:size]),
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
            data = unpack_elements(output.datatype, response.raw_output_contents[index])
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


IMAGES = [
    encode_image(rectangle(80, 60, (5, 6, 40, 50), colour)) for colour in ((255, 0, 0), (0, 0, 255), (40, 220, 90))
]


@pytest.mark.parametrize("model", ["classifier", "detector", "oriented", "segmenter", "teller"])
def test_chariot_v1_and_v2_predictions_for_images_are_equal(kserve: Client, model: str) -> None:
    texts = [encode_base64(data) for data in IMAGES]
    image = {"name": "image", "datatype": "BYTES", "shape": [len(texts)], "data": texts}
    over_v2 = over_json(kserve, f"/v2/models/{model}/infer", {"inputs": [image]})
    predictions = kserve.post(f"/v1/models/{model}:predict", json={"instances": texts}).json()["predictions"]
    assert predictions == [json.loads(records) for records in over_v2["predictions"][2]]
    assert all(predictions)
    for text, expected in zip(texts, predictions, strict=True):
        prompts = [record["prompt"] for record in expected] if model == "teller" else None
        assert items(infer(kserve, model, image_input(text, prompts=prompts))) == expected
    for data, expected in zip(IMAGES, predictions, strict=True):
        path, headers = f"/v1/models/{model}:predict", {"content-type": "image/png"}
        assert kserve.post(path, content=data, headers=headers).json() == {"predictions": [expected]}
        body = {"inputs": [{"image": decode_image(data).pixels.tolist()}]}
        assert kserve.post(path, json=body).json() == {"predictions": [expected]}


TEXTS = ["red, green and red", "nothing", "blue", "", "Grün is green"]


@pytest.mark.parametrize("model", ["sorter", "tagger", "continuer"])
def test_v1_and_v2_predictions_for_texts_are_equal(kserve: Client, model: str) -> None:
    texts = {"name": "args", "datatype": "BYTES", "shape": [len(TEXTS)], "data": TEXTS}
    over_v2 = over_json(kserve, f"/v2/models/{model}/infer", {"inputs": [texts]})
    expected = [json.loads(records) for records in over_v2["predictions"][2]]
    assert any(expected)
    as_bytes = [{"b64": encode_base64(text.encode())} for text in TEXTS]
    for instances in (TEXTS, as_bytes, [{"text": text} for text in TEXTS]):
        response = kserve.post(f"/v1/models/{model}:predict", json={"instances": instances})
        assert response.status_code == 200, response.text
        assert response.json() == {"predictions": expected}


# `echo-scalar` has no rows; `echo-deep` exceeds the maximum JSON depth.
@pytest.mark.parametrize("model", sorted({*ECHO_MODELS, *TENSOR_FIXTURES} - {"echo-scalar", "echo-deep"}))
def test_v1_and_v2_return_equal_tensors(kserve: Client, model: str) -> None:
    metadata = kserve.get(f"/v2/models/{model}").json()
    shapes = {tensor["name"]: [2 if size == -1 else size for size in tensor["shape"]] for tensor in metadata["inputs"]}
    inputs: list[dict[str, Any]] = []
    for spec in metadata["inputs"]:
        count = int(np.prod(shapes[spec["name"]]))
        data = [f"text {index}" for index in range(count)] if spec["datatype"] == "BYTES" else [1, 0] * (count // 2)
        inputs.append({**spec, "shape": shapes[spec["name"]], "data": data})
    nested = {tensor["name"]: np.array(tensor["data"], object).reshape(tensor["shape"]).tolist() for tensor in inputs}
    rows = [dict(zip(nested, row, strict=True)) for row in zip(*nested.values(), strict=True)]
    response = kserve.post(f"/v1/models/{model}:predict", json={"instances": rows})
    assert response.status_code == 200, response.text
    predictions = response.json()["predictions"]
    if any(tensor["datatype"] in ("FP16", "BF16") for tensor in inputs):
        # V2 defines no JSON encoding for them.
        assert predictions == nested["x"]
        return
    expected = over_json(kserve, f"/v2/models/{model}/infer", {"inputs": inputs})
    for name, (_, shape, data) in expected.items():
        rows_of_output = [row[name] for row in predictions] if len(expected) > 1 else predictions
        assert rows_of_output == np.array(data, object).reshape(shape).tolist()
