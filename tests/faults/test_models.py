"""Check that the server keeps answering when models fail or lose their files."""

import os
import resource
import shutil
from collections.abc import Generator
from pathlib import Path
from typing import Any

import grpc
import httpx
import onnx
import pytest

from tests.core.runtimes.onnxruntime import graphs
from tests.faults.gated import (
    BODY,
    GRPC_METHOD,
    GRPC_REQUEST,
    Gated,
    open_request,
    outcomes,
    read_response,
    unary_method,
)  # fmt: skip
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64
from tests.support.models.model_folders import write_model
from tests.support.polling import wait_until
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

pytestmark = pytest.mark.slow

DETECTOR = ROOT / "fixtures" / "models" / "detector"
SCENE = {"inputs": [image_input(encode_base64((ROOT / "fixtures" / "images" / "scene.jpg").read_bytes()))]}

_EXCEPTIONS = (
    "SystemExit(3)",
    "KeyboardInterrupt()",
    "MemoryError()",
    "RecursionError('too deep')",
    "StopIteration(1)",
    "GeneratorExit()",
    "asyncio.CancelledError()",
    "Stop('of its own')",
    "concurrent.futures.InvalidStateError('mine')",
)
_RAISING_MODEL = f"""
import asyncio, concurrent.futures

class Stop(BaseException):
    pass

class Model:
    def predict(self, image, parameters):
        which = parameters.top_k or 0
        if which:
            raise [{", ".join(_EXCEPTIONS)}][which - 1]
        return []
"""


def write_model_with_external_data(folder: Path) -> Path:
    """Write the detector with its weights in a separate file."""
    shutil.copytree(DETECTOR, folder)
    model = graphs.read_model(folder / "model.onnx")
    (folder / "model.onnx").unlink()
    untyped: Any = onnx
    untyped.save(model, folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    return folder


def _truncate(file: Path) -> None:
    os.truncate(file, 0)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a detector in one file and in two, a model that raises, and one that creates a tensor of `count` floats."""
    folder = tmp_path_factory.mktemp("models")
    shutil.copytree(DETECTOR, folder / "whole")
    write_model_with_external_data(folder / "parted")
    write_model(folder / "raising", _RAISING_MODEL)
    text = "(int64[1] count) => (float[1] sum) { filled = ConstantOfShape(count) sum = ReduceSum(filled) }"
    graphs.parse(folder / "hungry" / "model.onnx", text)
    return folder


@pytest.fixture(scope="module")
def server(models: Path) -> Generator[ServerProcess]:
    with run_server("--model-repository", str(models), "--allow-code") as process:
        yield process
        assert process.stop() == 0


@pytest.fixture
def client(server: ServerProcess) -> Generator[httpx.Client]:
    """Send requests to the server, which is ready after the test."""
    with httpx.Client(base_url=server.address, timeout=60) as client:
        yield client
        assert client.get("/ready").status_code == 200


def test_model_whose_files_are_removed_keeps_serving(models: Path, client: httpx.Client) -> None:
    files = [*models.glob("[wp]*/*.onnx"), *models.glob("*/*.bin")]
    assert len(files) == 3
    names = ("whole", "parted")
    before = [client.post(f"/v2/models/m-{name}/infer", json=SCENE).json()["outputs"] for name in names]
    for remove in (_truncate, Path.unlink):
        for file in files:
            remove(file)
        after = [client.post(f"/v2/models/m-{name}/infer", json=SCENE).json()["outputs"] for name in names]
        assert after == before
        for name in names:
            reload = client.post(f"/v2/repository/models/{name}/load")
            assert reload.status_code >= 400
            assert str(models) not in reload.text
            # The old version keeps serving.
            assert client.post(f"/v2/models/m-{name}/infer", json=SCENE).status_code == 200


def test_exception_of_a_model_fails_only_its_request(client: httpx.Client) -> None:
    path = "/v2/models/m-raising/infer"
    first = client.post(path, content=BODY, headers=_JSON)
    assert first.status_code == 200, first.text
    for number, exception in enumerate(_EXCEPTIONS, 1):
        failed = client.post(path, json={"inputs": [image_input(top_k=number)]})
        assert failed.status_code == 500, exception
        assert exception.partition("(")[0].rpartition(".")[2] in failed.json()["error"], exception
        assert client.post(path, content=BODY, headers=_JSON).status_code == 200, exception


_JSON = {"content-type": "application/json"}


def test_model_out_of_memory_fails_one_request_and_answers_next(server: ServerProcess, client: httpx.Client) -> None:
    def infer(count: int) -> httpx.Response:
        tensor = {"name": "count", "shape": [1], "datatype": "INT64", "data": [count]}
        return client.post("/v2/models/hungry/infer", json={"inputs": [tensor]})

    assert infer(5).status_code == 200
    limit = 2 * 1024**3 + int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[0]) * 4096
    resource.prlimit(server.process.pid, resource.RLIMIT_AS, (limit, limit))
    failed = infer(2**32)
    assert failed.status_code == 500
    assert "memory" in failed.json()["error"].lower() or "alloc" in failed.json()["error"].lower()
    assert infer(5).status_code == 200


def test_clients_that_leave_are_dropped_from_the_queue_without_errors(gated: Gated) -> None:
    with run_server(*gated.arguments, "--workers", "1") as server, open_request(server.address) as first:
        gated.wait_for_call()
        with open_request(server.address, **{"X-Request-ID": "left"}):
            pass
        wait_until(lambda: outcomes(server.log, "left") == ["cancelled"])
        with grpc.insecure_channel(server.grpc_address) as channel:
            unary_method(channel, GRPC_METHOD).future(GRPC_REQUEST, timeout=60).cancel()
            untyped: Any = channel
            stream = untyped.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
            stream(iter([GRPC_REQUEST]), timeout=60).cancel()
            gated.release()
            assert read_response(first)[0] == 200
        with open_request(server.address) as next_request:
            gated.wait_for_call()
            gated.release()
            assert read_response(next_request)[0] == 200
        metrics = httpx.get(f"{server.address}/metrics", timeout=60).text
        assert 'outcome="internal"' not in metrics
        assert server.stop() == 0
        assert "Traceback" not in "".join(server.log)
