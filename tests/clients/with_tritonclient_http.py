"""Triton's HTTP client against a server: ``python -m tests.clients.with_tritonclient_http URL REPOSITORY``."""

import importlib
import json
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.clients.checks import PICTURES, SCENE, SHAPE, TENSOR_MODELS, refusal, run

http: Any = importlib.import_module("tritonclient.http")
utils: Any = importlib.import_module("tritonclient.utils")

Refused: type[Exception] = utils.InferenceServerException


def numbers(*values: float, binary: bool = True) -> Any:
    """The input of half_plus_two."""
    given = http.InferInput("x", [len(values)], "FP32")
    given.set_data_from_numpy(np.array(values, np.float32), binary_data=binary)
    return given


def elements(name: str, *values: bytes, binary: bool = True) -> Any:
    """An input of BYTES."""
    given = http.InferInput(name, [len(values)], "BYTES")
    given.set_data_from_numpy(np.array(values, np.object_), binary_data=binary)
    return given


def check_health(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    for name in (*PICTURES, *TENSOR_MODELS):
        assert client.is_model_ready(name)
        assert client.is_model_ready(name, "1")
        assert not client.is_model_ready(name, "2")
    assert not client.is_model_ready("nobody")


def check_metadata(client: Any) -> None:
    about = client.get_server_metadata()
    assert about["name"] == "charioteer"
    assert "binary_tensor_data" in about["extensions"]
    model = client.get_model_metadata("half_plus_two", "1")
    assert model["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1]}]
    for name in PICTURES:
        assert client.get_model_metadata(name)["inputs"][0]["datatype"] == "BYTES"
    assert "404" in str(refusal(Refused, client.get_model_metadata, "nobody"))


def check_tensors(client: Any) -> None:
    for binary_in in (True, False):
        for binary_out in (True, False):
            wanted = [http.InferRequestedOutput("y", binary_data=binary_out)]
            answer = client.infer("half_plus_two", [numbers(1, 2, binary=binary_in)], outputs=wanted, request_id="a1")
            assert answer.as_numpy("y").tolist() == [2.5, 3.0]
            assert answer.get_response()["id"] == "a1"
    assert client.infer("half_plus_three", [numbers(1)]).as_numpy("y").tolist() == [3.5]
    assert "id" not in client.infer("half_plus_three", [numbers(1)]).get_response()


def check_texts(client: Any) -> None:
    for binary in (True, False):
        wanted = [http.InferRequestedOutput("greeting", binary_data=binary)]
        given = elements("text", "Åsa".encode(), b"", binary=binary)
        found = client.infer("greeter", [given], outputs=wanted).as_numpy("greeting").tolist()
        assert [each if isinstance(each, str) else each.decode() for each in found] == ["Hello, Åsa!", "Hello, !"]


def check_tasks_as_records(client: Any) -> None:
    for name, picture in PICTURES.items():
        for outputs in (None, [http.InferRequestedOutput("predictions", binary_data=False)]):
            found = client.infer(name, [elements("image", picture)], outputs=outputs).as_numpy("predictions")
            assert found.shape == (1,)
            records = json.loads(found[0])
            assert records, name
            assert records[0].keys() & {"label", "answer"}, records


def check_tasks_as_tensors(client: Any) -> None:
    answer = client.infer("detector", [elements("image", SCENE, SCENE)], parameters={"output_format": "tensors"})
    count = answer.as_numpy("num_detections")
    assert count.tolist() == [5, 5]
    assert answer.as_numpy("boxes").shape == (2, 5, 4)
    assert answer.as_numpy("labels").shape == (2, 5)
    assert answer.as_numpy("scores").dtype == np.float32
    names = [each["name"] for each in client.get_model_metadata("segmenter")["outputs"]]
    for name in names:
        wanted = [http.InferRequestedOutput(name)]
        assert client.infer("segmenter", [elements("image", SCENE)], outputs=wanted).as_numpy(name) is not None


def check_classification(client: Any) -> None:
    wanted = [http.InferRequestedOutput("scores", class_count=3)]
    found = client.infer("classifier", [elements("image", SHAPE)], outputs=wanted).as_numpy("scores")
    assert found.shape == (1, 3)
    scores = [float(each.decode().split(":")[0]) for each in found[0]]
    assert scores == sorted(scores, reverse=True)
    assert all(len(each.decode().split(":")) == 3 for each in found[0])


def check_compression(client: Any) -> None:
    for algorithm in ("gzip", "deflate"):
        for named in ({"request_compression_algorithm": algorithm}, {"response_compression_algorithm": algorithm}):
            answer = client.infer("half_plus_two", [numbers(*range(5000))], **named)
            assert answer.as_numpy("y")[4999] == 2501.5
            answer = client.infer("detector", [elements("image", SCENE)], **named)
            assert len(json.loads(answer.as_numpy("predictions")[0])) == 5


def check_errors(client: Any) -> None:
    for status, name, given in (
        ("404", "nobody", numbers(1)),
        ("400", "half_plus_two", elements("x", b"a")),
        ("400", "half_plus_two", elements("y", b"a")),
        ("400", "detector", elements("image", b"no image")),
    ):
        error: Any = refusal(Refused, client.infer, name, [given])
        assert status in error.status(), error
        assert error.message(), error
    wanted = [http.InferRequestedOutput("nothing")]
    assert "nothing" in str(refusal(Refused, client.infer, "half_plus_two", [numbers(1)], outputs=wanted))
    assert "404" in str(refusal(Refused, client.infer, "half_plus_two", [numbers(1)], model_version="7"))


def check_statistics(client: Any) -> None:
    def counted() -> tuple[int, int]:
        (entry,) = client.get_inference_statistics("half_plus_three", "1")["model_stats"]
        return entry["inference_count"], entry["inference_stats"]["success"]["count"]

    before = counted()
    client.infer("half_plus_three", [numbers(1)])
    assert counted() == (before[0] + 1, before[1] + 1)
    names = {each["name"] for each in client.get_inference_statistics()["model_stats"]}
    assert names >= {*PICTURES, *TENSOR_MODELS}


def check_many_at_once(client: Any) -> None:
    waiting = [client.async_infer("half_plus_two", [numbers(each)]) for each in range(40)]
    assert [each.get_result().as_numpy("y").tolist() for each in waiting] == [[each / 2 + 2] for each in range(40)]


def check_repository(client: Any, repository: Path) -> None:
    def state() -> str:
        (found,) = [each["state"] for each in client.get_model_repository_index() if each["name"] == "half_plus_two"]
        return found

    assert state() == "READY"
    client.unload_model("half_plus_two")
    assert state() == "UNAVAILABLE"
    assert not client.is_model_ready("half_plus_two")
    assert client.is_server_ready()
    assert "503" in str(refusal(Refused, client.infer, "half_plus_two", [numbers(1)]))
    shutil.copy(repository / "half_plus_three" / "model.onnx", repository / "half_plus_two" / "model.onnx")
    client.load_model("half_plus_two")
    assert client.infer("half_plus_two", [numbers(1)]).as_numpy("y").tolist() == [3.5]
    for call in (client.load_model, client.unload_model):
        assert "404" in str(refusal(Refused, call, "nobody"))


if __name__ == "__main__":
    server = http.InferenceServerClient(sys.argv[1].removeprefix("http://"), concurrency=8)
    run(globals(), server, Path(sys.argv[2]))
