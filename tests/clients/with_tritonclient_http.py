"""Check Triton's HTTP client against a server: ``python -m tests.clients.with_tritonclient_http URL REPOSITORY``."""

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.clients.checks import IMAGE_OF_MODEL, SCENE, SHAPE, TENSOR_MODELS, raised_error, run

http: Any = importlib.import_module("tritonclient.http")
utils: Any = importlib.import_module("tritonclient.utils")

InferenceError: type[Exception] = utils.InferenceServerException


def number_input(*values: float, binary: bool = True) -> Any:
    """Return the input of half_plus_two."""
    infer_input = http.InferInput("x", [len(values)], "FP32")
    infer_input.set_data_from_numpy(np.array(values, np.float32), binary_data=binary)
    return infer_input


def bytes_input(name: str, *values: bytes, binary: bool = True) -> Any:
    """Return a BYTES input."""
    infer_input = http.InferInput(name, [len(values)], "BYTES")
    infer_input.set_data_from_numpy(np.array(values, np.object_), binary_data=binary)
    return infer_input


def check_health(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    for name in (*IMAGE_OF_MODEL, *TENSOR_MODELS):
        assert client.is_model_ready(name)
        assert client.is_model_ready(name, "1")
        assert not client.is_model_ready(name, "2")
    assert not client.is_model_ready("missing")


def check_metadata(client: Any) -> None:
    metadata = client.get_server_metadata()
    assert metadata["name"] == "charioteer"
    assert "binary_tensor_data" in metadata["extensions"]
    model = client.get_model_metadata("half_plus_two", "1")
    assert model["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    for name in IMAGE_OF_MODEL:
        assert client.get_model_metadata(name)["inputs"][0]["datatype"] == "BYTES"
    assert "404" in str(raised_error(InferenceError, client.get_model_metadata, "missing"))


def check_config(client: Any) -> None:
    for name in (*IMAGE_OF_MODEL, *TENSOR_MODELS):
        config, metadata = client.get_model_config(name), client.get_model_metadata(name)
        for key, plural in (("input", "inputs"), ("output", "outputs")):
            assert [(tensor["name"], tensor["dims"]) for tensor in config[key]] == [
                (tensor["name"], tensor["shape"]) for tensor in metadata[plural]
            ]
    assert client.get_model_config("half_plus_two", "1")["input"][0]["data_type"] == "TYPE_FP32"
    assert "404" in str(raised_error(InferenceError, client.get_model_config, "missing"))
    for call in (client.get_log_settings, client.get_trace_settings, client.get_system_shared_memory_status):
        assert "does not support Triton's" in str(raised_error(InferenceError, call))


def check_tensors(client: Any) -> None:
    for binary_in in (True, False):
        for binary_out in (True, False):
            requested = [http.InferRequestedOutput("y", binary_data=binary_out)]
            response = client.infer(
                "half_plus_two", [number_input(1, 2, binary=binary_in)], outputs=requested, request_id="a1"
            )
            assert response.as_numpy("y").tolist() == [2.5, 3.0]
            assert response.get_response()["id"] == "a1"
    assert client.infer("half_plus_three", [number_input(1)]).as_numpy("y").tolist() == [3.5]
    assert "id" not in client.infer("half_plus_three", [number_input(1)]).get_response()


def check_texts(client: Any) -> None:
    for binary in (True, False):
        requested = [http.InferRequestedOutput("greeting", binary_data=binary)]
        infer_input = bytes_input("text", "Åsa".encode(), b"", binary=binary)
        greetings = client.infer("greeter", [infer_input], outputs=requested).as_numpy("greeting").tolist()
        assert [text if isinstance(text, str) else text.decode() for text in greetings] == ["Hello, Åsa!", "Hello, !"]


def check_tasks_as_records(client: Any) -> None:
    for name, image_bytes in IMAGE_OF_MODEL.items():
        for outputs in (None, [http.InferRequestedOutput("predictions", binary_data=False)]):
            predictions = client.infer(name, [bytes_input("image", image_bytes)], outputs=outputs).as_numpy(
                "predictions"
            )
            assert predictions.shape == (1,)
            records = json.loads(predictions[0])
            assert records, name
            assert records[0].keys() & {"label", "answer"}, records


def check_tasks_as_tensors(client: Any) -> None:
    response = client.infer("detector", [bytes_input("image", SCENE, SCENE)], parameters={"output_format": "tensors"})
    count = response.as_numpy("num_detections")
    assert count.tolist() == [5, 5]
    assert response.as_numpy("boxes").shape == (2, 5, 4)
    assert response.as_numpy("labels").shape == (2, 5)
    assert response.as_numpy("scores").dtype == np.float32
    names = [output["name"] for output in client.get_model_metadata("segmenter")["outputs"]]
    for name in names:
        requested = [http.InferRequestedOutput(name)]
        assert client.infer("segmenter", [bytes_input("image", SCENE)], outputs=requested).as_numpy(name) is not None


def check_classification(client: Any) -> None:
    requested = [http.InferRequestedOutput("scores", class_count=3)]
    entries = client.infer("classifier", [bytes_input("image", SHAPE)], outputs=requested).as_numpy("scores")
    assert entries.shape == (1, 3)
    scores = [float(entry.decode().split(":")[0]) for entry in entries[0]]
    assert scores == sorted(scores, reverse=True)
    assert all(len(entry.decode().split(":")) == 3 for entry in entries[0])


def check_compression(client: Any) -> None:
    for algorithm in ("gzip", "deflate"):
        for options in ({"request_compression_algorithm": algorithm}, {"response_compression_algorithm": algorithm}):
            response = client.infer("half_plus_two", [number_input(*range(5000))], **options)
            assert response.as_numpy("y")[4999] == 2501.5
            response = client.infer("detector", [bytes_input("image", SCENE)], **options)
            assert len(json.loads(response.as_numpy("predictions")[0])) == 5


def check_errors(client: Any) -> None:
    for status, name, infer_input in (
        ("404", "missing", number_input(1)),
        ("400", "half_plus_two", bytes_input("x", b"a")),
        ("400", "half_plus_two", bytes_input("y", b"a")),
        ("400", "detector", bytes_input("image", b"no image")),
    ):
        error: Any = raised_error(InferenceError, client.infer, name, [infer_input])
        assert status in error.status(), error
        assert error.message(), error
    requested = [http.InferRequestedOutput("nothing")]
    assert "nothing" in str(
        raised_error(InferenceError, client.infer, "half_plus_two", [number_input(1)], outputs=requested)
    )
    assert "404" in str(
        raised_error(InferenceError, client.infer, "half_plus_two", [number_input(1)], model_version="7")
    )


def check_statistics(client: Any) -> None:
    def inference_counts() -> tuple[int, int]:
        (entry,) = client.get_inference_statistics("half_plus_three", "1")["model_stats"]
        return entry["inference_count"], entry["inference_stats"]["success"]["count"]

    before = inference_counts()
    client.infer("half_plus_three", [number_input(1)])
    assert inference_counts() == (before[0] + 1, before[1] + 1)
    names = {model["name"] for model in client.get_inference_statistics()["model_stats"]}
    assert names >= {*IMAGE_OF_MODEL, *TENSOR_MODELS}


def check_concurrent_requests(client: Any) -> None:
    requests = [client.async_infer("half_plus_two", [number_input(value)]) for value in range(40)]
    assert [request.get_result().as_numpy("y").tolist() for request in requests] == [
        [value / 2 + 2] for value in range(40)
    ]


def check_repository(client: Any, repository: Path) -> None:
    def state() -> str:
        (current_state,) = [
            entry["state"] for entry in client.get_model_repository_index() if entry["name"] == "half_plus_two"
        ]
        return current_state

    assert state() == "READY"
    client.unload_model("half_plus_two")
    assert state() == "UNAVAILABLE"
    assert not client.is_model_ready("half_plus_two")
    assert client.is_server_ready()
    assert "503" in str(raised_error(InferenceError, client.infer, "half_plus_two", [number_input(1)]))
    shutil.copy(repository / "half_plus_three" / "model.onnx", repository / "half_plus_two" / "model.onnx")
    client.load_model("half_plus_two")
    assert client.infer("half_plus_two", [number_input(1)]).as_numpy("y").tolist() == [3.5]
    for call in (client.load_model, client.unload_model):
        assert "404" in str(raised_error(InferenceError, call, "missing"))


if __name__ == "__main__":
    server = http.InferenceServerClient(sys.argv[1].removeprefix("http://"), concurrency=8)
    run(globals(), server, Path(sys.argv[2]))
