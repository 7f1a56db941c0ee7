"""Check Triton's gRPC client: ``python -m tests.clients.with_tritonclient_grpc HOST:PORT REPOSITORY``."""

import importlib
import json
import queue
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.clients.checks import IMAGE_OF_MODEL, SCENE, SHAPE, TENSOR_MODELS, raised_error, run

grpc: Any = importlib.import_module("tritonclient.grpc")
utils: Any = importlib.import_module("tritonclient.utils")

InferenceError: type[Exception] = utils.InferenceServerException


def number_input(*values: float) -> Any:
    """Return the input of half_plus_two."""
    infer_input = grpc.InferInput("x", [len(values)], "FP32")
    infer_input.set_data_from_numpy(np.array(values, np.float32))
    return infer_input


def bytes_input(name: str, *values: bytes) -> Any:
    """Return a BYTES input."""
    infer_input = grpc.InferInput(name, [len(values)], "BYTES")
    infer_input.set_data_from_numpy(np.array(values, np.object_))
    return infer_input


def check_health(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    for name in (*IMAGE_OF_MODEL, *TENSOR_MODELS):
        assert client.is_model_ready(name)
        assert client.is_model_ready(name, "1")
        assert not client.is_model_ready(name, "2")
    assert not client.is_model_ready("missing")


def check_config(client: Any) -> None:
    config = client.get_model_config("half_plus_two").config
    assert (config.name, config.platform, config.max_batch_size) == ("half_plus_two", "onnxruntime_onnx", 0)
    as_json = client.get_model_config("detector", as_json=True)["config"]
    assert as_json["input"] == [{"name": "image", "data_type": "TYPE_STRING", "dims": ["-1"]}]
    assert as_json["parameters"]["task_type"]["string_value"] == "OBJECT_DETECTION"
    for call in (client.get_log_settings, client.get_trace_settings, client.get_cuda_shared_memory_status):
        assert "does not support Triton's" in str(raised_error(InferenceError, call))


def check_metadata(client: Any) -> None:
    metadata = client.get_server_metadata()
    assert metadata.name == "charioteer"
    model = client.get_model_metadata("half_plus_two", as_json=True)
    assert model["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1"]}]
    error: Any = raised_error(InferenceError, client.get_model_metadata, "missing")
    assert "NOT_FOUND" in error.status()


def check_tensors(client: Any) -> None:
    response = client.infer("half_plus_two", [number_input(1, 2)], request_id="a1")
    assert response.as_numpy("y").tolist() == [2.5, 3.0]
    assert response.get_response().id == "a1"
    for algorithm in ("gzip", "deflate"):
        response = client.infer("half_plus_three", [number_input(*range(5000))], compression_algorithm=algorithm)
        assert response.as_numpy("y")[4999] == 2502.5


def check_texts(client: Any) -> None:
    greetings = client.infer("greeter", [bytes_input("text", "Åsa".encode(), b"")]).as_numpy("greeting").tolist()
    assert [text.decode() for text in greetings] == ["Hello, Åsa!", "Hello, !"]


def check_tasks(client: Any) -> None:
    for name, image_bytes in IMAGE_OF_MODEL.items():
        records = json.loads(client.infer(name, [bytes_input("image", image_bytes)]).as_numpy("predictions")[0])
        assert records[0].keys() & {"label", "answer"}, records
    response = client.infer("detector", [bytes_input("image", SCENE)], parameters={"output_format": "tensors"})
    assert response.as_numpy("boxes").shape == (1, 5, 4)
    limited = client.infer("detector", [bytes_input("image", SCENE)], parameters={"top_k": 2})
    assert len(json.loads(limited.as_numpy("predictions")[0])) == 2


def check_classification(client: Any) -> None:
    requested = [grpc.InferRequestedOutput("scores", class_count=3)]
    scores = client.infer("classifier", [bytes_input("image", SHAPE)], outputs=requested).as_numpy("scores")
    assert scores.shape == (1, 3)
    assert all(len(entry.decode().split(":")) == 3 for entry in scores[0])


def check_errors(client: Any) -> None:
    for status, name, infer_input in (
        ("NOT_FOUND", "missing", number_input(1)),
        ("INVALID_ARGUMENT", "half_plus_two", bytes_input("x", b"a")),
        ("INVALID_ARGUMENT", "detector", bytes_input("image", b"no image")),
    ):
        error: Any = raised_error(InferenceError, client.infer, name, [infer_input])
        assert status in error.status(), error


def check_stream(client: Any) -> None:
    responses: queue.Queue[tuple[Any, Any]] = queue.Queue()

    def on_response(result: Any, error: Any) -> None:
        responses.put((result, error))

    client.start_stream(on_response)
    for value in range(5):
        client.async_stream_infer("half_plus_two", [number_input(value)], request_id=str(value))
    client.async_stream_infer("missing", [number_input(1)])
    received = [responses.get(timeout=30) for _ in range(6)]
    client.stop_stream()
    assert [result.as_numpy("y").tolist() for result, _ in received[:5]] == [[value / 2 + 2] for value in range(5)]
    assert "missing" in str(received[5][1])


def check_statistics(client: Any) -> None:
    def inference_count() -> int:
        (entry,) = client.get_inference_statistics("half_plus_three", "1").model_stats
        return entry.inference_count

    before = inference_count()
    client.infer("half_plus_three", [number_input(1)])
    assert inference_count() == before + 1


def check_repository(client: Any, repository: Path) -> None:
    def state() -> str:
        (entry,) = [model for model in client.get_model_repository_index().models if model.name == "half_plus_two"]
        return entry.state

    assert state() == "READY"
    client.unload_model("half_plus_two")
    assert state() == "UNAVAILABLE"
    assert not client.is_model_ready("half_plus_two")
    error: Any = raised_error(InferenceError, client.infer, "half_plus_two", [number_input(1)])
    assert "UNAVAILABLE" in error.status()
    shutil.copy(repository / "half_plus_three" / "model.onnx", repository / "half_plus_two" / "model.onnx")
    client.load_model("half_plus_two")
    assert client.infer("half_plus_two", [number_input(1)]).as_numpy("y").tolist() == [3.5]


if __name__ == "__main__":
    server = grpc.InferenceServerClient(sys.argv[1])
    run(globals(), server, Path(sys.argv[2]))
