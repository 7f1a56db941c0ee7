"""Test isolated models in a server process."""

import json
import shutil
import signal
import textwrap
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import grpc
import httpx
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from app.core.engine.models.memory import resident_bytes
from app.core.proto import message_class
from tests.plugins.isolation.test_processes import CODE, SEGV, is_running
from tests.support.data.images import encode_base64
from tests.support.models.model_folders import write_model
from tests.support.polling import wait_until
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

MODELS = ROOT / "fixtures" / "models"
SCENE = (ROOT / "fixtures" / "images" / "scene.jpg").read_bytes()
IMAGE_TENSOR = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [encode_base64(SCENE)]}
PLAIN, ISOLATED = "plain-", "alone-"

pytestmark = pytest.mark.slow


@contextmanager
def repository(folder: Path, *names: str, **settings: object) -> Generator[ServerProcess]:
    """Start a server that has each fixture model twice: in its own process, and isolated."""
    for name in names:
        for prefix, isolate in ((PLAIN, False), (ISOLATED, True)):
            shutil.copytree(MODELS / name, folder / f"{prefix}{name}")
            text = json.dumps({"isolate": isolate, **settings})
            (folder / f"{prefix}{name}" / "model-settings.json").write_text(text)
    with run_server("--model-repository", str(folder), "--allow-code") as server:
        assert server.address
        yield server


def model_processes(server: ServerProcess) -> dict[str, int]:
    """Return the PIDs of the server's model processes by the names that `ps` shows.

    A thread of the server, or a process, may end while its files are read.
    """
    pids: dict[str, int] = {}
    for task in Path(f"/proc/{server.process.pid}/task").iterdir():
        children: list[str] = []
        with suppress(FileNotFoundError, ProcessLookupError):
            children = (task / "children").read_text().split()
        for child in children:
            with suppress(FileNotFoundError, ProcessLookupError):
                pids[Path(f"/proc/{child}/comm").read_text().strip()] = int(child)
    return pids


def response_body(server: ServerProcess, model: str, path: str, body: dict[str, Any]) -> bytes:
    """Return the body of a model's response, without the model's name."""
    response = httpx.post(f"{server.address}{path.format(model)}", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.content.replace(model.encode(), b"")


def infer(server: ServerProcess, model: str, value: int) -> httpx.Response:
    tensor = {"name": "image", "shape": [8, 8, 3], "datatype": "UINT8", "data": [value] * (8 * 8 * 3)}
    return httpx.post(f"{server.address}/v2/models/{model}/infer", json={"inputs": [tensor]}, timeout=60)


def test_isolated_answers_equal_plain_answers_byte_for_byte(tmp_path: Path) -> None:
    instances = {"instances": [{"image": {"b64": encode_base64(SCENE)}}]}
    question = {"gmap": {"s_b": {"a": encode_base64(SCENE)}, "s_i32": {"max_new_tokens": 6}}}
    numbers = {"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 3]}]}
    images = {"inputs": [{**IMAGE_TENSOR, "parameters": {"score_threshold": 0.1}}, {**IMAGE_TENSOR, "name": "second"}]}
    blank = {"name": "images", "shape": [1, 3, 192, 192], "datatype": "FP32", "data": [0] * (3 * 192 * 192)}
    explanation = {**instances, "parameters": {"samples": 20, "grid": 4, "seed": 1}}
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("detector", "/v2/models/{}/infer", images),
        ("detector", "/v2/models/m-{}/infer", images),
        ("detector@tensors", "/v2/models/{}/infer", {"inputs": [blank]}),
        ("detector", "/v1/models/{}:predict", instances),
        ("detector", "/v1/models/{}:explain", explanation),
        ("segmenter", "/v2/models/{}/infer", images),
        ("vlm", "/grps/v1/infer/predict?model={}", question),
        ("vlm", "/grps/v1/infer/predict?model={}&streaming=true", question),
        ("half_plus_two", "/v2/models/{}/infer", numbers),
    ]
    with repository(tmp_path, "detector", "segmenter", "vlm", "half_plus_two") as server:
        assert len(model_processes(server)) == 4
        for name, path, body in requests:
            plain, isolated = (
                response_body(server, f"{prefix}{name}", path, body if "gmap" in body else {**body, "id": "1"})
                for prefix in (PLAIN, ISOLATED)
            )
            assert isolated == plain, path
        with grpc.insecure_channel(server.grpc_address) as channel:
            plain, isolated = (_over_grpc(channel, f"{prefix}detector") for prefix in (PLAIN, ISOLATED))
            assert isolated == plain


def _over_grpc(channel: grpc.Channel, model: str) -> bytes:
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [SCENE]}}
    request = message_class("inference.ModelInferRequest")(model_name=model, id="1", inputs=[tensor])
    call = cast("Any", channel).unary_unary("/inference.GRPCInferenceService/ModelInfer")
    response = message_class("inference.ModelInferResponse").FromString(call(request.SerializeToString(), timeout=60))
    assert response.model_name == model
    response.model_name = ""
    return response.SerializeToString(deterministic=True)


def test_crash_under_load_does_not_affect_other_models(tmp_path: Path) -> None:
    hold_file = tmp_path / "held"
    code = (
        f"import pathlib, time\nwhile pathlib.Path({str(hold_file)!r}).exists(): time.sleep(0.01)\n"
        f"{textwrap.dedent(CODE)}"
    )
    write_model(tmp_path / "models" / "mortal", code, isolate=True)
    with repository(tmp_path / "models", "classifier") as server:
        first = model_processes(server)["mortal/1"]
        stop = threading.Event()
        names = (f"{PLAIN}classifier", f"{ISOLATED}classifier", "mortal")
        statuses: dict[str, list[int]] = {name: [] for name in names}

        def send_requests(model: str) -> None:
            while not stop.is_set():
                statuses[model].append(infer(server, model, 0).status_code)

        with ThreadPoolExecutor(3) as pool, ExitStack() as cleanup:
            cleanup.callback(hold_file.unlink, missing_ok=True)
            cleanup.callback(stop.set)
            futures = [pool.submit(send_requests, name) for name in names]
            wait_until(lambda: all(200 in codes for codes in statuses.values()))
            hold_file.touch()
            assert infer(server, "mortal", SEGV).status_code == 503
            rejected = httpx.get(f"{server.address}/v2/health/ready", timeout=60)
            assert (rejected.status_code, "signal 11" in rejected.text) == (503, True)
            assert _health(server) == HealthCheckResponse.NOT_SERVING
            index = httpx.post(f"{server.address}/v2/repository/index", json={}, timeout=60).json()
            (entry,) = [model for model in index if model["name"] == "mortal"]
            assert (entry["state"], "is being restarted" in entry["reason"]) == ("UNAVAILABLE", True)
            before = {name: len(codes) for name, codes in statuses.items()}
            wait_until(lambda: all(len(statuses[name]) > before[name] + 5 for name in names))
            assert 503 in statuses["mortal"]
            hold_file.unlink()
            wait_until(lambda: httpx.get(f"{server.address}/v2/health/ready", timeout=60).status_code == 200)
            assert _health(server) == HealthCheckResponse.SERVING
            stop.set()
            for future in futures:
                future.result()
        *others, crashed = (set(statuses[name]) for name in names)
        assert others == [{200}, {200}]
        assert crashed == {200, 503}
        assert infer(server, "mortal", 0).status_code == 200
        assert not is_running(first)

        # Model processes end even when the server is killed.
        processes = model_processes(server)
        server.process.kill()
        assert server.wait() == -signal.SIGKILL
        assert len(processes) == 2
        wait_until(lambda: not any(map(is_running, processes.values())))


def _health(server: ServerProcess) -> int:
    with grpc.insecure_channel(server.grpc_address) as channel:
        check = cast("Any", channel).unary_unary("/grpc.health.v1.Health/Check")
        return HealthCheckResponse.FromString(check(HealthCheckRequest().SerializeToString(), timeout=60)).status


def test_model_process_ends_on_reload_unload_and_shutdown(tmp_path: Path) -> None:
    with repository(tmp_path, "classifier") as server:
        name = f"{ISOLATED}classifier"
        (first,) = model_processes(server).values()
        entries = httpx.get(f"{server.address}/page/models.json", timeout=60).json()["models"]
        memory = next(entry["memory"] for entry in entries if entry["name"] == name)
        assert memory == pytest.approx(resident_bytes(first), rel=0.5)
        assert httpx.post(f"{server.address}/v2/repository/models/{name}/load", timeout=60).status_code == 200
        wait_until(lambda: not is_running(first))
        (second,) = model_processes(server).values()
        assert httpx.post(f"{server.address}/v2/repository/models/{name}/unload", timeout=60).status_code == 200
        wait_until(lambda: not is_running(second))
        assert infer(server, f"{PLAIN}classifier", 0).status_code == 200
        assert httpx.post(f"{server.address}/v2/repository/models/{name}/load", timeout=60).status_code == 200
        (third,) = model_processes(server).values()
        assert server.stop() == 0
        assert not is_running(third)


def test_server_stops_in_time_despite_hung_model(tmp_path: Path) -> None:
    code = "import pathlib, ctypes\nclass Model:\n    def predict(self, image):\n"
    code += "        pathlib.Path(__file__).with_name('reached').touch()\n        ctypes.PyDLL(None).sleep(1000)\n"
    write_model(tmp_path / "m", code)
    with run_server("--model", str(tmp_path / "m"), "--allow-code", "--isolate", "--drain-timeout", "1") as server:
        assert server.address
        (child,) = model_processes(server).values()
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(infer, server, "m", 0)
            wait_until((tmp_path / "m" / "reached").is_file)
            # The model's own call takes 1000 s.
            assert server.stop() == 0
            assert future.exception() is not None or future.result().status_code == 503
        assert not is_running(child)
