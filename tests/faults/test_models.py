"""Models that fail in every way there is, and files that are taken away from under them: the server goes on."""

import json
import os
import resource
import shutil
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any

import grpc
import httpx
import onnx
import pytest
from onnx import TensorProto, helper

from app.proto import message_class
from tests.faults.gated import BODY, GRPC_METHOD, Gated, asked, made, method
from tests.support.chariot import image_input
from tests.support.pictures import base64_text
from tests.support.server_process import ROOT, ServerProcess, serving

pytestmark = pytest.mark.slow

DETECTOR = ROOT / "fixtures" / "models" / "detector"
SCENE = {"inputs": [image_input(base64_text((ROOT / "fixtures" / "images" / "scene.jpg").read_bytes()))]}

_RAISED = (
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
_RAISING = f"""
import asyncio, concurrent.futures

class Stop(BaseException):
    pass

class Raising:
    def predict(self, image, parameters):
        which = parameters.top_k or 0
        if which:
            raise [{", ".join(_RAISED)}][which - 1]
        return []
"""


def placed(folder: Path, code: str, name: str) -> Path:
    """The folder of a model in Python."""
    folder.mkdir()
    (folder / "model.py").write_text(code)
    settings = {"name": name.lower(), "task_type": "OBJECT_DETECTION", "implementation": f"model:{name}"}
    (folder / "model-settings.json").write_text(json.dumps(settings))
    return folder


def with_outside_data(folder: Path) -> Path:
    """The detector, its weights in a file of their own."""
    shutil.copytree(DETECTOR, folder)
    untyped: Any = onnx
    model = untyped.load(folder / "model.onnx")
    (folder / "model.onnx").unlink()
    untyped.save(model, folder / "model.onnx", save_as_external_data=True, location="weights.bin", size_threshold=0)
    return folder


def _cut_short(file: Path) -> None:
    os.truncate(file, 0)


def test_files_that_are_taken_away_while_they_are_served(tmp_path: Path) -> None:
    shutil.copytree(DETECTOR, tmp_path / "whole")
    with_outside_data(tmp_path / "parted")
    files = [*tmp_path.glob("*/*.onnx"), *tmp_path.glob("*/*.bin")]
    assert len(files) == 3
    with (
        serving("--model-repository", str(tmp_path)) as server,
        httpx.Client(base_url=server.address, timeout=60) as client,
    ):
        names = ("whole", "parted")
        before = [client.post(f"/v2/models/m-{name}/infer", json=SCENE).json()["outputs"] for name in names]
        for take in (_cut_short, Path.unlink):
            for file in files:
                take(file)
            found = [client.post(f"/v2/models/m-{name}/infer", json=SCENE).json()["outputs"] for name in names]
            assert found == before
            for name in names:
                refused = client.post(f"/v2/repository/models/{name}/load")
                assert refused.status_code >= 400
                assert str(tmp_path) not in refused.text
                assert client.post(f"/v2/models/m-{name}/infer", json=SCENE).status_code == 200, "what served goes on"
        assert client.get("/ready").status_code == 200
        assert server.stop() == 0


def test_whatever_a_model_raises_is_its_own_failure(tmp_path: Path) -> None:
    folder = placed(tmp_path / "raising", _RAISING, "Raising")
    with (
        serving("--model", str(folder), "--allow-code") as server,
        httpx.Client(base_url=server.address, timeout=60) as client,
    ):
        first = client.post("/infer", content=BODY, headers=_JSON)
        assert first.status_code == 200, first.text
        for which, raised in enumerate(_RAISED, 1):
            body = {"inputs": [image_input(top_k=which)]}
            failed = client.post("/infer", json=body)
            assert failed.status_code == 500, raised
            assert raised.partition("(")[0].rpartition(".")[2] in failed.json()["error"], raised
            assert client.post("/infer", content=BODY, headers=_JSON).status_code == 200, raised
        assert client.get("/ready").status_code == 200
        assert server.stop() == 0


_JSON = {"content-type": "application/json"}


def hungry(folder: Path) -> Path:
    """A model that makes a tensor of as many floats as it is told to."""
    graph = helper.make_graph(
        [
            helper.make_node("ConstantOfShape", ["count"], ["filled"]),
            helper.make_node("ReduceSum", ["filled"], ["sum"]),
        ],
        "hungry",
        [helper.make_tensor_value_info("count", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("sum", TensorProto.FLOAT, [1])],
    )
    folder.mkdir()
    untyped: Any = onnx
    untyped.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), folder / "model.onnx"
    )
    return folder


def test_a_model_that_finds_no_memory_fails_and_answers_the_next(tmp_path: Path) -> None:
    def ask(client: httpx.Client, count: int) -> httpx.Response:
        tensor = {"name": "count", "shape": [1], "datatype": "INT64", "data": [count]}
        return client.post("/v2/models/hungry/infer", json={"inputs": [tensor]})

    with (
        serving("--model", str(hungry(tmp_path / "hungry"))) as server,
        httpx.Client(base_url=server.address, timeout=60) as client,
    ):
        assert ask(client, 5).status_code == 200
        room = 2 * 1024**3 + int(Path(f"/proc/{server.process.pid}/statm").read_text().split()[0]) * 4096
        resource.prlimit(server.process.pid, resource.RLIMIT_AS, (room, room))
        failed = ask(client, 2**32)
        assert failed.status_code == 500
        assert "memory" in failed.json()["error"].lower() or "alloc" in failed.json()["error"].lower()
        assert ask(client, 5).status_code == 200
        assert client.get("/ready").status_code == 200
        assert server.stop() == 0


@pytest.fixture
def gated(tmp_path: Path) -> Generator[Gated]:
    with made(tmp_path / "gated") as folder:
        yield folder


def test_what_waits_for_a_model_holds_up_nothing_else(gated: Gated) -> None:
    """More calls by way of the page than there are threads for small work, which gzip and GRPS need."""
    calls = 40
    with serving(*gated.arguments, "--page") as server, httpx.Client(base_url=server.address, timeout=60) as client:
        path = "/page/grpc/inference.GRPCInferenceService/ModelInfer"
        element = {"name": "image", "datatype": "BYTES", "shape": [1]}
        content = {"bytes_contents": [image_input()["data"][0]]}
        body = json.dumps({"model_name": "gated", "inputs": [{**element, "contents": content}]})
        waiting = [threading.Thread(target=_waits, args=(server, path, body), daemon=True) for _ in range(calls)]
        for each in waiting:
            each.start()
        gated.wait()
        assert client.get("/grps/v1/metadata/server").status_code == 200
        assert client.get("/ready").status_code == 200
        gated.let_go(calls)
        for each in waiting:
            each.join(180)
            assert not each.is_alive()


def _waits(server: ServerProcess, path: str, body: str) -> None:
    with asked(server.address, path, body) as connection:
        assert connection.getresponse().status == 200


def test_senders_who_leave_over_grpc_leave_nothing_behind(gated: Gated) -> None:
    with serving(*gated.arguments, "--workers", "1") as server:
        server.address  # noqa: B018  when there is one, the models are there
        httpx.get(f"{server.address}/health", timeout=60)
        request = message_class("inference.ModelInferRequest")(
            model_name="gated",
            inputs=[{"name": "image", "datatype": "BYTES", "shape": [1]}],
            raw_input_contents=[b"\x04\0\0\0nope"],
        )
        with grpc.insecure_channel(server.grpc_address) as channel, asked(server.address) as held:
            gated.wait()
            left = method(channel, GRPC_METHOD).future(request.SerializeToString(), timeout=60)
            left.cancel()
            untyped: Any = channel
            stream = untyped.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")
            stream(iter([request.SerializeToString()]), timeout=60).cancel()
            gated.let_go()
            assert held.getresponse().status == 200
        with httpx.Client(base_url=server.address, timeout=60) as client:
            metrics = client.get("/metrics").text
            assert 'outcome="internal"' not in metrics
        assert server.stop() == 0
        assert "Traceback" not in "".join(server.log)
