"""Check Triton's HTTP and gRPC clients: ``python -m tests.clients.with_tritonclient http|grpc ADDRESS REPOSITORY``."""

import ast
import importlib
import json
import queue
import shutil
import sys
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.clients.checks import IMAGE_OF_MODEL, SCENE, SHAPE, TENSOR_MODELS, raised_error, run

TRANSPORT = sys.argv[1]
HTTP = TRANSPORT == "http"
triton: Any = importlib.import_module(f"tritonclient.{TRANSPORT}")
utils: Any = importlib.import_module("tritonclient.utils")

InferenceError: type[Exception] = utils.InferenceServerException
NOT_FOUND, INVALID, UNAVAILABLE = ("404", "400", "503") if HTTP else ("NOT_FOUND", "INVALID_ARGUMENT", "UNAVAILABLE")
AS_JSON: dict[str, Any] = {} if HTTP else {"as_json": True}
ENCODINGS: list[dict[str, Any]] = [{"binary_data": True}, {"binary_data": False}] if HTTP else [{}]
DIRECTIONS = ("request_compression_algorithm", "response_compression_algorithm") if HTTP else ("compression_algorithm",)


def number_input(*values: float, **encoding: Any) -> Any:
    """Return the input of half_plus_two."""
    infer_input = triton.InferInput("x", [len(values)], "FP32")
    infer_input.set_data_from_numpy(np.array(values, np.float32), **encoding)
    return infer_input


def bytes_input(name: str, *values: bytes, **encoding: Any) -> Any:
    """Return a BYTES input."""
    infer_input = triton.InferInput(name, [len(values)], "BYTES")
    infer_input.set_data_from_numpy(np.array(values, np.object_), **encoding)
    return infer_input


def failed(call: Any, *arguments: Any, **named: Any) -> str:
    """Return status and message of a call that must fail."""
    return str(raised_error(InferenceError, call, *arguments, **named))


def check_health(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    for name in (*IMAGE_OF_MODEL, *TENSOR_MODELS):
        assert client.is_model_ready(name)
        assert client.is_model_ready(name, "1")
        assert not client.is_model_ready(name, "2")
    assert not client.is_model_ready("missing")


def check_metadata(client: Any) -> None:
    metadata = client.get_server_metadata(**AS_JSON)
    assert metadata["name"] == "charioteer"
    assert not HTTP or "binary_tensor_data" in metadata["extensions"]
    (tensor,) = client.get_model_metadata("half_plus_two", "1", **AS_JSON)["inputs"]
    assert (tensor["name"], tensor["datatype"], [*map(int, tensor["shape"])]) == ("x", "FP32", [-1])
    for name in IMAGE_OF_MODEL:
        assert client.get_model_metadata(name, **AS_JSON)["inputs"][0]["datatype"] == "BYTES"
    assert NOT_FOUND in failed(client.get_model_metadata, "missing")


def check_config(client: Any) -> None:
    def config_of(name: str) -> Any:
        config = client.get_model_config(name, "1", **AS_JSON)
        return config if HTTP else config["config"]

    for name in (*IMAGE_OF_MODEL, *TENSOR_MODELS):
        config, metadata = config_of(name), client.get_model_metadata(name, **AS_JSON)
        for key, plural in (("input", "inputs"), ("output", "outputs")):
            assert [(tensor["name"], tensor["dims"]) for tensor in config[key]] == [
                (tensor["name"], tensor["shape"]) for tensor in metadata[plural]
            ]
    numbers = config_of("half_plus_two")
    assert (numbers["platform"], numbers.get("max_batch_size", 0)) == ("onnxruntime_onnx", 0)
    assert numbers["input"][0]["data_type"] == "TYPE_FP32"
    assert config_of("detector")["parameters"]["task_type"]["string_value"] == "OBJECT_DETECTION"
    assert NOT_FOUND in failed(client.get_model_config, "missing")
    memory = (client.get_system_shared_memory_status, client.get_cuda_shared_memory_status)
    for call in (client.get_log_settings, client.get_trace_settings, *memory):
        assert "does not support Triton's" in failed(call)


def check_tensors(client: Any) -> None:
    for encoding in ENCODINGS:
        for output_encoding in ENCODINGS:
            outputs = [triton.InferRequestedOutput("y", **output_encoding)]
            numbers = number_input(1, 2, **encoding)
            response = client.infer("half_plus_two", [numbers], outputs=outputs, request_id="a1")
            assert response.as_numpy("y").tolist() == [2.5, 3.0]
            assert response.get_response(**AS_JSON)["id"] == "a1"
    response = client.infer("half_plus_three", [number_input(1)])
    assert response.as_numpy("y").tolist() == [3.5]
    assert "id" not in response.get_response(**AS_JSON)


def check_texts(client: Any) -> None:
    for encoding in ENCODINGS:
        outputs = [triton.InferRequestedOutput("greeting", **encoding)]
        texts = bytes_input("text", "Åsa".encode(), b"", **encoding)
        greetings = client.infer("greeter", [texts], outputs=outputs).as_numpy("greeting").tolist()
        assert [text if isinstance(text, str) else text.decode() for text in greetings] == ["Hello, Åsa!", "Hello, !"]


def check_tasks_as_records(client: Any) -> None:
    for name, image_bytes in IMAGE_OF_MODEL.items():
        for outputs in (None, [triton.InferRequestedOutput("predictions", **ENCODINGS[-1])]):
            response = client.infer(name, [bytes_input("image", image_bytes)], outputs=outputs)
            predictions = response.as_numpy("predictions")
            assert predictions.shape == (1,)
            assert json.loads(predictions[0])[0].keys() & {"label", "answer"}, predictions
    limited = client.infer("detector", [bytes_input("image", SCENE)], parameters={"top_k": 2})
    assert len(json.loads(limited.as_numpy("predictions")[0])) == 2


def check_tasks_as_tensors(client: Any) -> None:
    response = client.infer("detector", [bytes_input("image", SCENE, SCENE)], parameters={"output_format": "tensors"})
    assert response.as_numpy("num_detections").tolist() == [5, 5]
    assert response.as_numpy("boxes").shape == (2, 5, 4)
    assert response.as_numpy("labels").shape == (2, 5)
    assert response.as_numpy("scores").dtype == np.float32
    for output in client.get_model_metadata("segmenter", **AS_JSON)["outputs"]:
        outputs = [triton.InferRequestedOutput(output["name"])]
        response = client.infer("segmenter", [bytes_input("image", SCENE)], outputs=outputs)
        assert response.as_numpy(output["name"]) is not None


def check_steps_of_ultralytics_with_a_tensor_view(client: Any) -> None:
    """Do what the remote model of Ultralytics does: read the configuration, send pixels, and read by sorted names."""
    config = client.get_model_config("detector@tensors", **AS_JSON)
    config = config if HTTP else config["config"]
    metadata = ast.literal_eval(config["parameters"]["metadata"]["string_value"])
    (declared,), outputs = config["input"], sorted(output["name"] for output in config["output"])
    assert (declared["data_type"], metadata["task"]) == ("TYPE_FP32", "detect")
    image = Image.open(BytesIO(SCENE)).convert("RGB").resize((192, 192))
    pixels = np.asarray(image, np.float32).transpose(2, 0, 1)[None] / 255
    sent = triton.InferInput(declared["name"], [*pixels.shape], "FP32")
    sent.set_data_from_numpy(pixels)
    response = client.infer("detector@tensors", [sent], outputs=list(map(triton.InferRequestedOutput, outputs)))
    found = response.as_numpy(outputs[0])[0, 4:]
    records = json.loads(client.infer("detector", [bytes_input("image", SCENE)]).as_numpy("predictions")[0])
    number = int(found.max(axis=1).argmax())
    assert ast.literal_eval(metadata["names"])[number] in {record["label"] for record in records}
    assert found.max() > 0.5


def check_classification(client: Any) -> None:
    outputs = [triton.InferRequestedOutput("scores", class_count=3)]
    entries = client.infer("classifier", [bytes_input("image", SHAPE)], outputs=outputs).as_numpy("scores")
    assert entries.shape == (1, 3)
    scores = [float(entry.decode().split(":")[0]) for entry in entries[0]]
    assert scores == sorted(scores, reverse=True)
    assert all(len(entry.decode().split(":")) == 3 for entry in entries[0])


def check_compression(client: Any) -> None:
    for options in ({direction: name} for direction in DIRECTIONS for name in ("gzip", "deflate")):
        response = client.infer("half_plus_two", [number_input(*range(5000))], **options)
        assert response.as_numpy("y")[4999] == 2501.5
        response = client.infer("detector", [bytes_input("image", SCENE)], **options)
        assert len(json.loads(response.as_numpy("predictions")[0])) == 5


def check_errors(client: Any) -> None:
    for status, name, infer_input in (
        (NOT_FOUND, "missing", number_input(1)),
        (INVALID, "half_plus_two", bytes_input("x", b"a")),
        (INVALID, "half_plus_two", bytes_input("y", b"a")),
        (INVALID, "detector", bytes_input("image", b"no image")),
    ):
        error: Any = raised_error(InferenceError, client.infer, name, [infer_input])
        assert status in error.status(), error
        assert error.message(), error
    outputs = [triton.InferRequestedOutput("nothing")]
    assert "nothing" in failed(client.infer, "half_plus_two", [number_input(1)], outputs=outputs)
    assert NOT_FOUND in failed(client.infer, "half_plus_two", [number_input(1)], model_version="7")


def check_statistics(client: Any) -> None:
    def inference_counts() -> tuple[int, int]:
        (entry,) = client.get_inference_statistics("half_plus_three", "1", **AS_JSON)["model_stats"]
        return int(entry["inference_count"]), int(entry["inference_stats"]["success"]["count"])

    client.infer("half_plus_three", [number_input(1)])
    before = inference_counts()
    client.infer("half_plus_three", [number_input(1)])
    assert inference_counts() == (before[0] + 1, before[1] + 1)
    names = {model["name"] for model in client.get_inference_statistics(**AS_JSON)["model_stats"]}
    assert names >= {*IMAGE_OF_MODEL, *TENSOR_MODELS}


def check_several_requests_in_flight(client: Any) -> None:
    expected = [[value / 2 + 2] for value in range(40)]
    if HTTP:
        requests = [client.async_infer("half_plus_two", [number_input(value)]) for value in range(40)]
        assert [request.get_result().as_numpy("y").tolist() for request in requests] == expected
        return
    responses: queue.Queue[tuple[Any, Any]] = queue.Queue()

    def on_response(result: Any, error: Any) -> None:
        responses.put((result, error))

    client.start_stream(on_response)
    for value in range(40):
        client.async_stream_infer("half_plus_two", [number_input(value)], request_id=str(value))
    client.async_stream_infer("missing", [number_input(1)])
    *received, (_, error) = [responses.get(timeout=60) for _ in range(41)]
    client.stop_stream()
    assert [result.as_numpy("y").tolist() for result, _ in received] == expected
    assert "missing" in str(error)


def check_repository(client: Any, repository: Path) -> None:
    def state() -> str:
        index = client.get_model_repository_index(**AS_JSON)
        (found,) = [entry for entry in (index if HTTP else index["models"]) if entry["name"] == "half_plus_two"]
        return found["state"]

    assert state() == "READY"
    client.unload_model("half_plus_two")
    assert state() == "UNAVAILABLE"
    assert not client.is_model_ready("half_plus_two")
    assert client.is_server_ready()
    assert UNAVAILABLE in failed(client.infer, "half_plus_two", [number_input(1)])
    shutil.copy(repository / "half_plus_three" / "model.onnx", repository / "half_plus_two" / "model.onnx")
    client.load_model("half_plus_two")
    assert client.infer("half_plus_two", [number_input(1)]).as_numpy("y").tolist() == [3.5]
    for call in (client.load_model, client.unload_model):
        assert NOT_FOUND in failed(call, "missing")


if __name__ == "__main__":
    options: dict[str, Any] = {"concurrency": 8} if HTTP else {}
    server = triton.InferenceServerClient(sys.argv[2].removeprefix("http://"), **options)
    run(globals(), server, Path(sys.argv[3]))
