"""Triton's gRPC client against a server: ``python -m tests.clients.with_tritonclient_grpc HOST:PORT REPOSITORY``."""

import importlib
import json
import queue
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.clients.checks import PICTURES, SCENE, SHAPE, TENSOR_MODELS, refusal, run

grpc: Any = importlib.import_module("tritonclient.grpc")
utils: Any = importlib.import_module("tritonclient.utils")

Refused: type[Exception] = utils.InferenceServerException


def numbers(*values: float) -> Any:
    """The input of half_plus_two."""
    given = grpc.InferInput("x", [len(values)], "FP32")
    given.set_data_from_numpy(np.array(values, np.float32))
    return given


def elements(name: str, *values: bytes) -> Any:
    """An input of BYTES."""
    given = grpc.InferInput(name, [len(values)], "BYTES")
    given.set_data_from_numpy(np.array(values, np.object_))
    return given


def check_health(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    for name in (*PICTURES, *TENSOR_MODELS):
        assert client.is_model_ready(name)
        assert client.is_model_ready(name, "1")


def check_metadata(client: Any) -> None:
    about = client.get_server_metadata()
    assert about.name == "charioteer"
    model = client.get_model_metadata("half_plus_two", as_json=True)
    assert model["inputs"] == [{"name": "x", "datatype": "FP32", "shape": ["-1"]}]
    error: Any = refusal(Refused, client.get_model_metadata, "nobody")
    assert "NOT_FOUND" in error.status()


def check_tensors(client: Any) -> None:
    answer = client.infer("half_plus_two", [numbers(1, 2)], request_id="a1")
    assert answer.as_numpy("y").tolist() == [2.5, 3.0]
    assert answer.get_response().id == "a1"
    for algorithm in ("gzip", "deflate"):
        answer = client.infer("half_plus_three", [numbers(*range(5000))], compression_algorithm=algorithm)
        assert answer.as_numpy("y")[4999] == 2502.5


def check_texts(client: Any) -> None:
    found = client.infer("greeter", [elements("text", "Åsa".encode(), b"")]).as_numpy("greeting").tolist()
    assert [each.decode() for each in found] == ["Hello, Åsa!", "Hello, !"]


def check_tasks(client: Any) -> None:
    for name, picture in PICTURES.items():
        records = json.loads(client.infer(name, [elements("image", picture)]).as_numpy("predictions")[0])
        assert records[0].keys() & {"label", "answer"}, records
    answer = client.infer("detector", [elements("image", SCENE)], parameters={"output_format": "tensors"})
    assert answer.as_numpy("boxes").shape == (1, 5, 4)
    few = client.infer("detector", [elements("image", SCENE)], parameters={"top_k": 2})
    assert len(json.loads(few.as_numpy("predictions")[0])) == 2


def check_classification(client: Any) -> None:
    wanted = [grpc.InferRequestedOutput("scores", class_count=3)]
    found = client.infer("classifier", [elements("image", SHAPE)], outputs=wanted).as_numpy("scores")
    assert found.shape == (1, 3)
    assert all(len(each.decode().split(":")) == 3 for each in found[0])


def check_errors(client: Any) -> None:
    for status, name, given in (
        ("NOT_FOUND", "nobody", numbers(1)),
        ("INVALID_ARGUMENT", "half_plus_two", elements("x", b"a")),
        ("INVALID_ARGUMENT", "detector", elements("image", b"no image")),
    ):
        error: Any = refusal(Refused, client.infer, name, [given])
        assert status in error.status(), error


def check_a_stream(client: Any) -> None:
    answers: queue.Queue[tuple[Any, Any]] = queue.Queue()

    def heard(result: Any, error: Any) -> None:
        answers.put((result, error))

    client.start_stream(heard)
    for value in range(5):
        client.async_stream_infer("half_plus_two", [numbers(value)], request_id=str(value))
    client.async_stream_infer("nobody", [numbers(1)])
    found = [answers.get(timeout=30) for _ in range(6)]
    client.stop_stream()
    assert [result.as_numpy("y").tolist() for result, _ in found[:5]] == [[each / 2 + 2] for each in range(5)]
    assert "nobody" in str(found[5][1])


def check_statistics(client: Any) -> None:
    def counted() -> int:
        (entry,) = client.get_inference_statistics("half_plus_three", "1").model_stats
        return entry.inference_count

    before = counted()
    client.infer("half_plus_three", [numbers(1)])
    assert counted() == before + 1


def check_repository(client: Any, repository: Path) -> None:
    def state() -> str:
        (found,) = [each for each in client.get_model_repository_index().models if each.name == "half_plus_two"]
        return found.state

    assert state() == "READY"
    client.unload_model("half_plus_two")
    assert state() == "UNAVAILABLE"
    assert not client.is_model_ready("half_plus_two")
    error: Any = refusal(Refused, client.infer, "half_plus_two", [numbers(1)])
    assert "UNAVAILABLE" in error.status()
    shutil.copy(repository / "half_plus_three" / "model.onnx", repository / "half_plus_two" / "model.onnx")
    client.load_model("half_plus_two")
    assert client.infer("half_plus_two", [numbers(1)]).as_numpy("y").tolist() == [3.5]


if __name__ == "__main__":
    server = grpc.InferenceServerClient(sys.argv[1])
    run(globals(), server, Path(sys.argv[2]))
