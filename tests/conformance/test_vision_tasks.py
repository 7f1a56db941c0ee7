"""Ask a real server of the fixture models for every vision task, over every protocol, with a real image."""

import base64
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import grpc
import httpx
import pytest

from app.plugins.grps.proto import message_class
from tests.support.data.chariot import image_input
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

IMAGES = ROOT / "fixtures" / "images"
TRUTH: Mapping[str, list[dict[str, Any]]] = json.loads((IMAGES / "truth.json").read_text())
MODELS = {
    "classifier": "shape.jpg",
    "detector": "scene.jpg",
    "oriented-detector": "oriented.jpg",
    "segmenter": "scene.jpg",
    "vlm": "shape.jpg",
}
BOXES = {"detector": ("xmin", "ymin", "xmax", "ymax"), "oriented-detector": ("cx", "cy", "w", "h", "r")}
PROMPT = "what shape is it?"

Records = list[dict[str, Any]]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with run_server() as server:
        yield server


def image_of(model: str) -> bytes:
    return (IMAGES / MODELS[model]).read_bytes()


def prompt_of(model: str) -> dict[str, str]:
    return {"prompt": PROMPT} if model == "vlm" else {}


def post(url: str, body: object) -> Any:
    response = httpx.post(url, json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def call(server: ServerProcess, method: str, request: Any, response: str) -> Any:
    with grpc.insecure_channel(server.grpc_address) as channel:
        unary = cast("Any", channel.unary_unary(method))
        return message_class(response).FromString(unary(request.SerializeToString(), timeout=60))


def over_chariot(server: ServerProcess, model: str) -> Records:
    prompts = {"prompts": [PROMPT]} if model == "vlm" else {}
    action = {"action": "predict_proba"} if model == "classifier" else {}
    body = {"inputs": [image_input(base64_of(model), **prompts, **action)]}
    response = post(f"{server.address}/v2/models/m-{model}/infer", body)
    return response["outputs"][0]["data"][0]


def over_v2_rest(server: ServerProcess, model: str) -> Records:
    texts = {"image": base64_of(model), **prompt_of(model)}
    inputs: list[dict[str, Any]] = [
        {"name": name, "shape": [1], "datatype": "BYTES", "data": [text]} for name, text in texts.items()
    ]
    inputs[0]["parameters"] = {"content_type": "base64"}
    response = post(f"{server.address}/v2/models/{model}/infer", {"inputs": inputs})
    (found,) = [output for output in response["outputs"] if output["name"] == "predictions"]
    return json.loads(found["data"][0])


def over_v2_grpc(server: ServerProcess, model: str) -> Records:
    request = message_class("inference.ModelInferRequest")(model_name=model)
    elements = {"image": image_of(model), **{name: text.encode() for name, text in prompt_of(model).items()}}
    for name, data in elements.items():
        request.inputs.add(name=name, datatype="BYTES", shape=[1]).contents.bytes_contents.append(data)
    request.outputs.add(name="predictions")
    path = "/inference.GRPCInferenceService/ModelInfer"
    response = call(server, path, request, "inference.ModelInferResponse")
    return json.loads(response.outputs[0].contents.bytes_contents[0])


def over_v1(server: ServerProcess, model: str) -> Records:
    body = {"instances": [{"image": {"b64": base64_of(model)}, **prompt_of(model)}]}
    return post(f"{server.address}/v1/models/{model}:predict", body)["predictions"][0]


def over_grps_rest(server: ServerProcess, model: str) -> Records:
    body = {"model": model, "gmap": {"s_b": {"a": base64_of(model)}, "s_s": prompt_of(model)}}
    return json.loads(post(f"{server.address}/grps/v1/infer/predict", body)["gmap"]["s_s"]["a"])


def over_grps_grpc(server: ServerProcess, model: str) -> Records:
    kind = "grps.protos.v1.GrpsMessage"
    request = message_class(kind)(model=model)
    request.gmap.s_b["a"] = image_of(model)
    request.gmap.s_s.update(prompt_of(model))
    response = call(server, "/grps.protos.v1.GrpsService/Predict", request, kind)
    return json.loads(response.gmap.s_s["a"])


def over_tensorflow_serving(server: ServerProcess, model: str) -> Records:
    """Build records from the tensors of one row."""
    body = {"instances": [{"image": {"b64": base64_of(model)}, **prompt_of(model)}]}
    (row,) = post(f"{server.tensorflow_serving_address}/v1/models/{model}:predict", body)["predictions"]
    if model == "vlm":
        return [{"prompt": prompt, "answer": text} for prompt, text in zip(row["prompts"], row["answers"], strict=True)]
    locations: list[dict[str, Any]] = [{} for _ in row["labels"]]
    if names := BOXES.get(model):
        locations = [dict(zip(names, box, strict=True)) for box in row["boxes"]]
    if model == "segmenter":
        locations = [{"contour": json.loads(contours)} for contours in row["contours"]]
    columns = zip(row["labels"], row["scores"], locations, strict=True)
    return [{"label": label, "score": score, **location} for label, score, location in columns]


def base64_of(model: str) -> str:
    return base64.b64encode(image_of(model)).decode()


CLIENTS: Mapping[str, Callable[[ServerProcess, str], Records]] = {
    "kserve-v2": over_v2_rest,
    "kserve-v2-grpc": over_v2_grpc,
    "kserve-v1": over_v1,
    "grps": over_grps_rest,
    "grps-grpc": over_grps_grpc,
    "tensorflow-serving": over_tensorflow_serving,
}


@pytest.fixture(scope="module")
def records(server: ServerProcess) -> Mapping[str, Records]:
    """Return the records of each model over chariot-v2-kserve."""
    return {model: over_chariot(server, model) for model in MODELS}


def test_chariot_predictions_equal_ground_truth(records: Mapping[str, Records]) -> None:
    scene, oriented = TRUTH["scene.jpg"], TRUTH["oriented.jpg"]
    labels = {model: sorted(record["label"] for record in items) for model, items in records.items() if model != "vlm"}
    assert labels["detector"] == sorted(f"{shape['color']} {shape['shape']}" for shape in scene)
    assert labels["oriented-detector"] == sorted(shape["shape"] for shape in oriented)
    assert labels["segmenter"] == sorted(shape["shape"] for shape in scene)
    assert records["classifier"][0]["label"] == "blue star"
    assert records["vlm"] == [{"prompt": PROMPT, "answer": "star"}]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("protocol", CLIENTS)
def test_protocol_returns_records_of_chariot(
    server: ServerProcess, records: Mapping[str, Records], protocol: str, model: str
) -> None:
    # Tensors of FP32 have more digits than records.
    tolerance = 1e-4 if protocol == "tensorflow-serving" else 0
    assert_same(CLIENTS[protocol](server, model), records[model], tolerance)


def assert_same(actual: Records, expected: Records, tolerance: float) -> None:
    assert len(actual) == len(expected)
    for record, other in zip(actual, expected, strict=True):
        assert set(record) == set(other)
        for name, value in other.items():
            same = pytest.approx(value, abs=tolerance) if isinstance(value, float) else value
            assert record[name] == same, name
