"""Isolated models in a server as its operator runs it."""

import json
import shutil
import signal
import textwrap
import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast

import grpc
import httpx
import pytest
from grpc_health.v1.health_pb2 import HealthCheckRequest, HealthCheckResponse

from app.proto import message_class
from tests.app.runtimes.isolated.test_processes import CODE, SEGV, runs
from tests.support.model_folders import write
from tests.support.pictures import base64_text
from tests.support.polling import wait_until
from tests.support.server_process import ROOT, ServerProcess, serving

MODELS = ROOT / "fixtures" / "models"
SCENE = (ROOT / "fixtures" / "images" / "scene.jpg").read_bytes()
PICTURE = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [base64_text(SCENE)]}
PLAIN, ISOLATED = "plain-", "alone-"

pytestmark = pytest.mark.slow


@contextmanager
def repository(folder: Path, *names: str, **settings: object) -> Generator[ServerProcess]:
    """A server of each of these fixtures twice, once in a process of its own."""
    for name in names:
        for prefix, isolate in ((PLAIN, False), (ISOLATED, True)):
            shutil.copytree(MODELS / name, folder / f"{prefix}{name}")
            text = json.dumps({"isolate": isolate, **settings})
            (folder / f"{prefix}{name}" / "model-settings.json").write_text(text)
    with serving("--model-repository", str(folder), "--allow-code") as server:
        assert server.address
        yield server


def children(server: ServerProcess) -> dict[str, int]:
    """The processes of a server's models by their names, as `ps` shows them."""
    found: dict[str, int] = {}
    for task in Path(f"/proc/{server.process.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found[Path(f"/proc/{child}/comm").read_text().strip()] = int(child)
    return found


def asked(server: ServerProcess, model: str, path: str, body: dict[str, Any]) -> bytes:
    """What a model answers, without its name."""
    response = httpx.post(f"{server.address}{path.format(model)}", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.content.replace(model.encode(), b"")


def infer(server: ServerProcess, model: str, value: int) -> httpx.Response:
    """Have a model look at a picture of one grey."""
    tensor = {"name": "image", "shape": [8, 8, 3], "datatype": "UINT8", "data": [value] * (8 * 8 * 3)}
    return httpx.post(f"{server.address}/v2/models/{model}/infer", json={"inputs": [tensor]}, timeout=60)


def test_answers_are_the_same_byte_for_byte(tmp_path: Path) -> None:
    instances = {"instances": [{"image": {"b64": base64_text(SCENE)}}]}
    said = {"text_input": "What is this?", "image": base64_text(SCENE), "parameters": {"max_new_tokens": 6}}
    numbers = {"inputs": [{"name": "x", "shape": [3], "datatype": "FP32", "data": [1, 2, 3]}]}
    pictures = {"inputs": [{**PICTURE, "parameters": {"score_threshold": 0.1}}, {**PICTURE, "name": "second"}]}
    explained = {**instances, "parameters": {"samples": 20, "grid": 4, "seed": 1}}
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("detector", "/v2/models/{}/infer", pictures),
        ("detector", "/v2/models/m-{}/infer", pictures),
        ("detector", "/v1/models/{}:predict", instances),
        ("detector", "/v1/models/{}:explain", explained),
        ("segmenter", "/v2/models/{}/infer", pictures),
        ("vlm", "/v2/models/{}/generate", said),
        ("vlm", "/v2/models/{}/generate_stream", said),
        ("half_plus_two", "/v2/models/{}/infer", numbers),
    ]
    with repository(tmp_path, "detector", "segmenter", "vlm", "half_plus_two") as server:
        assert len(children(server)) == 4
        for name, path, body in requests:
            plain, alone = (asked(server, f"{prefix}{name}", path, {**body, "id": "1"}) for prefix in (PLAIN, ISOLATED))
            assert alone == plain, path
        with grpc.insecure_channel(server.grpc_address) as channel:
            plain, alone = (_over_grpc(channel, f"{prefix}detector") for prefix in (PLAIN, ISOLATED))
            assert alone == plain


def _over_grpc(channel: grpc.Channel, model: str) -> bytes:
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [SCENE]}}
    request = message_class("inference.ModelInferRequest")(model_name=model, id="1", inputs=[tensor])
    ask = cast("Any", channel).unary_unary("/inference.GRPCInferenceService/ModelInfer")
    answer = message_class("inference.ModelInferResponse").FromString(ask(request.SerializeToString(), timeout=60))
    assert answer.model_name == model
    answer.model_name = ""
    return answer.SerializeToString(deterministic=True)


def test_a_crash_under_load_costs_another_model_nothing(tmp_path: Path) -> None:
    held = tmp_path / "held"
    code = (
        f"import pathlib, time\nwhile pathlib.Path({str(held)!r}).exists(): time.sleep(0.01)\n{textwrap.dedent(CODE)}"
    )
    write(tmp_path / "models" / "mortal", code, isolate=True)
    with repository(tmp_path / "models", "classifier") as server:
        first = children(server)["mortal/1"]
        over = threading.Event()
        names = (f"{PLAIN}classifier", f"{ISOLATED}classifier", "mortal")
        statuses: dict[str, list[int]] = {name: [] for name in names}

        def go_on(model: str) -> None:
            while not over.is_set():
                statuses[model].append(infer(server, model, 0).status_code)

        with ThreadPoolExecutor(3) as senders, ExitStack() as ending:
            ending.callback(held.unlink, missing_ok=True)
            ending.callback(over.set)
            sending = [senders.submit(go_on, name) for name in names]
            wait_until(lambda: all(200 in each for each in statuses.values()))
            held.touch()
            assert infer(server, "mortal", SEGV).status_code == 503
            refused = httpx.get(f"{server.address}/v2/health/ready", timeout=60)
            assert (refused.status_code, "signal 11" in refused.text) == (503, True)
            assert _health(server) == HealthCheckResponse.NOT_SERVING
            index = httpx.post(f"{server.address}/v2/repository/index", json={}, timeout=60).json()
            (entry,) = [each for each in index if each["name"] == "mortal"]
            assert (entry["state"], "is being restarted" in entry["reason"]) == ("UNAVAILABLE", True)
            before = {name: len(each) for name, each in statuses.items()}
            wait_until(lambda: all(len(statuses[name]) > before[name] + 5 for name in names))
            assert 503 in statuses["mortal"]
            held.unlink()
            wait_until(lambda: httpx.get(f"{server.address}/v2/health/ready", timeout=60).status_code == 200)
            assert _health(server) == HealthCheckResponse.SERVING
            over.set()
            for each in sending:
                each.result()
        *others, own = (set(statuses[name]) for name in names)
        assert others == [{200}, {200}]
        assert own == {200, 503}
        assert infer(server, "mortal", 0).status_code == 200
        assert not runs(first)
        metrics = httpx.get(f"{server.address}/metrics", timeout=60).text
        assert 'charioteer_model_restarts_total{cause="signal 11, SIGSEGV",model="mortal",version="1"} 1.0' in metrics

        # However the server ends.
        left = children(server)
        server.process.kill()
        assert server.wait() == -signal.SIGKILL
        assert len(left) == 2
        wait_until(lambda: not any(map(runs, left.values())))


def _health(server: ServerProcess) -> int:
    with grpc.insecure_channel(server.grpc_address) as channel:
        check = cast("Any", channel).unary_unary("/grpc.health.v1.Health/Check")
        return HealthCheckResponse.FromString(check(HealthCheckRequest().SerializeToString(), timeout=60)).status


def test_unloading_loading_anew_and_the_servers_end_end_the_process(tmp_path: Path) -> None:
    with repository(tmp_path, "classifier") as server:
        name = f"{ISOLATED}classifier"
        (first,) = children(server).values()
        assert httpx.post(f"{server.address}/v2/repository/models/{name}/load", timeout=60).status_code == 200
        wait_until(lambda: not runs(first))
        (second,) = children(server).values()
        assert httpx.post(f"{server.address}/v2/repository/models/{name}/unload", timeout=60).status_code == 200
        wait_until(lambda: not runs(second))
        assert infer(server, f"{PLAIN}classifier", 0).status_code == 200
        assert httpx.post(f"{server.address}/v2/repository/models/{name}/load", timeout=60).status_code == 200
        (third,) = children(server).values()
        assert server.stop() == 0
        assert not runs(third)


def test_the_server_ends_in_time_with_a_model_that_hangs(tmp_path: Path) -> None:
    hanging = "import pathlib, ctypes\nclass Model:\n    def predict(self, image):\n"
    hanging += "        pathlib.Path(__file__).with_name('reached').touch()\n        ctypes.PyDLL(None).sleep(1000)\n"
    write(tmp_path / "m", hanging)
    with serving("--model", str(tmp_path / "m"), "--allow-code", "--isolate", "--drain-timeout", "1") as server:
        assert server.address
        (child,) = children(server).values()
        with ThreadPoolExecutor(1) as sender:
            asking = sender.submit(infer, server, "m", 0)
            wait_until((tmp_path / "m" / "reached").is_file)
            # The model's own call takes 1000 s.
            assert server.stop() == 0
            assert asking.exception() is not None or asking.result().status_code == 503
        assert not runs(child)
