"""Check KServe's REST and gRPC clients against a server: ``python -m tests.clients.with_kserve URL HOST:PORT``.

CloudEvents are encoded and decoded by the library that KServe uses.
"""

import asyncio
import base64
import importlib
import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from tests.clients.checks import IMAGE_OF_MODEL, SCENE, TENSOR_MODELS, raised_error, run

grpc: Any = importlib.import_module("grpc")
httpx: Any = importlib.import_module("httpx")
kserve: Any = importlib.import_module("kserve")
events: Any = importlib.import_module("cloudevents.http")
conversion: Any = importlib.import_module("cloudevents.conversion")


def with_client(address: str, operation: Callable[[Any], Awaitable[Any]], protocol: str = "v2") -> Any:
    """Run `operation` with a client of REST for a URL, or of gRPC for host and port, and return its result."""

    async def session() -> Any:
        async with (
            kserve.InferenceRESTClient(kserve.inference_client.RESTConfig(protocol=protocol))
            if address.startswith("http")
            else kserve.InferenceGRPCClient(address)
        ) as client:
            return await operation(client)

    return asyncio.run(session())


def infer(address: str, model: str, *inputs: Any, **options: Any) -> Any:
    """Return a response as KServe's client decodes it."""
    data = kserve.InferRequest(model_name=model, infer_inputs=list(inputs), **options)
    if address.startswith("http"):
        return with_client(address, lambda client: client.infer(address, data, model_name=model))
    return with_client(address, lambda client: client.infer(data))


def tensor(name: str, array: Any, datatype: str, *, binary: bool) -> Any:
    """Return an input with its data as JSON or as binary data; over gRPC with typed or raw contents."""
    infer_input = kserve.InferInput(name, list(array.shape), datatype)
    infer_input.set_data_from_numpy(array, binary_data=binary)
    return infer_input


def check_health(url: str, address: str) -> None:
    assert with_client(url, lambda client: client.is_server_live(url)) is True
    assert with_client(url, lambda client: client.is_server_ready(url)) is True
    assert with_client(address, lambda client: client.is_server_live()) is True
    assert with_client(address, lambda client: client.is_server_ready()) is True
    for name in (*IMAGE_OF_MODEL, *TENSOR_MODELS):
        assert with_client(url, lambda client, name=name: client.is_model_ready(url, name)) is True
        assert with_client(address, lambda client, name=name: client.is_model_ready(name)) is True
    assert with_client(url, lambda client: client.is_model_ready(url, "missing")) is False


def check_tensors(url: str, grpc_address: str) -> None:
    for address in (url, grpc_address):
        for binary in (True, False):
            infer_input = tensor("x", np.array([1, 2], np.float32), "FP32", binary=binary)
            response = infer(address, "half_plus_two", infer_input, request_id="a1")
            assert response.outputs[0].as_numpy().tolist() == [2.5, 3.0]
            assert (response.id, response.model_name) == ("a1", "half_plus_two")
            assert address == url or response.model_version == "1"


def check_binary_answers(url: str) -> None:
    infer_input = tensor("x", np.array([1, 2], np.float32), "FP32", binary=True)
    response = infer(url, "half_plus_two", infer_input, parameters={"binary_data_output": True})
    assert response.outputs[0].as_numpy().tolist() == [2.5, 3.0]


def check_texts(url: str, address: str) -> None:
    array = np.array(["Åsa".encode(), b""], np.object_)
    inputs = [(address, tensor("text", array, "BYTES", binary=binary)) for binary in (True, False)]
    for target, infer_input in [(url, kserve.InferInput("text", [2], "BYTES", data=["Åsa", ""])), *inputs]:
        texts = infer(target, "greeter", infer_input).outputs[0].as_numpy().tolist()
        assert [text if isinstance(text, str) else text.decode() for text in texts] == ["Hello, Åsa!", "Hello, !"]


def check_tasks(url: str, grpc_address: str) -> None:
    for address in (url, grpc_address):
        for name, image_bytes in IMAGE_OF_MODEL.items():
            infer_input = tensor("image", np.array([image_bytes], np.object_), "BYTES", binary=True)
            (output,) = infer(address, name, infer_input).outputs
            assert output.name == "predictions"
            assert json.loads(output.as_numpy()[0]), name


def check_tasks_as_tensors(url: str) -> None:
    infer_input = tensor("image", np.array([SCENE], np.object_), "BYTES", binary=True)
    response = infer(url, "detector", infer_input, parameters={"output_format": "tensors"})
    outputs = {output.name: output.as_numpy() for output in response.outputs}
    assert outputs["num_detections"].tolist() == [5]
    assert outputs["boxes"].shape == (1, 5, 4)


def check_errors(url: str, address: str) -> None:
    infer_input = tensor("z", np.array([1], np.float64), "FP64", binary=True)
    for model, name, http_status, code in (
        ("half_plus_two", "'x'", 400, grpc.StatusCode.INVALID_ARGUMENT),
        ("missing", "'missing'", 404, grpc.StatusCode.NOT_FOUND),
    ):
        over_http: Any = raised_error(httpx.HTTPStatusError, infer, url, model, infer_input)
        assert over_http.response.status_code == http_status
        over_grpc: Any = raised_error(grpc.RpcError, infer, address, model, infer_input)
        assert over_grpc.code() is code, over_grpc
        assert name in str(over_http)
        assert name in over_grpc.details()


def predict(url: str, model: str, *instances: Any, **body: Any) -> Any:
    """Return a V1 response, which KServe's client does not decode."""
    data = {"instances": instances, **body}
    return with_client(url, lambda client: client.infer(url, data, model_name=model), "v1")


def is_ready(url: str, model: str) -> Any:
    """Return whether a model is ready according to V1."""
    return with_client(url, lambda client: client.is_model_ready(url, model), "v1")


def explain(url: str, model: str, *instances: Any, **parameters: Any) -> Any:
    """Return a V1 response with explanations."""
    data = {"instances": instances, "parameters": parameters}
    return with_client(url, lambda client: client.explain(url, model, data), "v1")


def image_instance(image_bytes: bytes) -> dict[str, str]:
    """Return an instance in the format of KServe's image transformers."""
    return {"b64": base64.b64encode(image_bytes).decode()}


def check_v1_health(url: str) -> None:
    assert with_client(url, lambda client: client.is_server_live(url), "v1") is True
    for name in (*IMAGE_OF_MODEL, *TENSOR_MODELS):
        assert is_ready(url, name) is True
    assert "Model with name missing does not exist." in str(
        raised_error(httpx.HTTPStatusError, is_ready, url, "missing")
    )


def check_v1_not_ready(url: str) -> None:
    assert httpx.post(f"{url}/v2/repository/models/half_plus_three/unload", timeout=60).status_code == 200
    assert is_ready(url, "half_plus_three") is False
    assert "503" in str(raised_error(httpx.HTTPStatusError, predict, url, "half_plus_three", 1))
    assert httpx.post(f"{url}/v2/repository/models/half_plus_three/load", timeout=60).status_code == 200
    assert predict(url, "half_plus_three", 1) == {"predictions": [3.5]}


def check_v1_tensors(url: str) -> None:
    assert predict(url, "half_plus_two", 1.0, 2.0, 5.0) == {"predictions": [2.5, 3.0, 4.5]}
    assert predict(url, "greeter", "Åsa", {"b64": "Qm8="}) == {"predictions": ["Hello, Åsa!", "Hello, Bo!"]}


def check_v1_tasks(url: str) -> None:
    for name, image_bytes in IMAGE_OF_MODEL.items():
        infer_input = tensor("image", np.array([image_bytes], np.object_), "BYTES", binary=True)
        (output,) = infer(url, name, infer_input).outputs
        assert predict(url, name, image_instance(image_bytes)) == {"predictions": [json.loads(output.as_numpy()[0])]}, (
            name
        )


def check_v1_explanations(url: str) -> None:
    response = explain(url, "detector", image_instance(SCENE), samples=16, format="data")
    assert len(response["predictions"][0]) == len(response["explanations"][0]) == 5
    saliency = response["explanations"][0][0]["saliency"]
    assert list(np.array(saliency["data"]).shape) == saliency["shape"]
    (row,) = explain(url, "half_plus_two", 2.0)["explanations"]
    assert (row["importance_scores"], row["score"], row["baseline_score"]) == ([1.0], 3.0, 2.0)
    assert "501" in str(raised_error(httpx.HTTPStatusError, explain, url, "greeter", "Åsa"))


def check_v1_events(url: str) -> None:
    attributes = {"type": "com.example.picture", "source": "/cameras/7"}
    event = events.CloudEvent(attributes, {"instances": [1.0, 2.0]})
    headers, body = conversion.to_binary(event)
    response = httpx.post(f"{url}/v1/models/half_plus_two:predict", headers=headers, content=body, timeout=60)
    assert response.status_code == 200, response.text
    response = events.from_http(response.headers, response.content)
    assert response.data == {"predictions": [2.5, 3.0]}
    assert response["type"] == "io.kserve.inference.response"
    assert response["source"] == "io.kserve.inference.half_plus_two"
    assert response["specversion"] == "1.0"
    assert response["id"] != event["id"]


def check_v1_errors(url: str) -> None:
    for model, instance, status, expected_text in (
        ("half_plus_two", "a", "400", "instances[0]"),
        ("detector", {"b64": "YQ=="}, "400", "instances[0].b64"),
        ("missing", 1, "404", "Model with name missing does not exist."),
    ):
        error_text = str(raised_error(httpx.HTTPStatusError, predict, url, model, instance))
        assert status in error_text
        assert expected_text in error_text


if __name__ == "__main__":
    run(globals(), sys.argv[1], sys.argv[2])
