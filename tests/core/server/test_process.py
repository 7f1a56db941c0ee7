"""The server as a process: start, requests, stop, and failed starts."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import grpc
import httpx
import pytest

from app.core.settings.server import ServerSettings
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64
from tests.support.models.model_folders import write_model
from tests.support.polling import wait_until
from tests.support.servers.grpc_server import message
from tests.support.servers.ports import reserve_ports
from tests.support.servers.server_process import ROOT, run_server

DETECTOR = ROOT / "fixtures" / "models" / "detector"
SCENE = ROOT / "fixtures" / "images" / "scene.jpg"
IMAGE = SCENE.read_bytes()

pytestmark = pytest.mark.slow


def test_process_serves_a_model_logs_only_json_and_exits_with_status_0() -> None:
    with run_server("--model", str(DETECTOR)) as server:
        address = server.address
        assert httpx.get(f"{address}/ready", timeout=60).status_code == 200
        body = {"inputs": [image_input(encode_base64(SCENE.read_bytes()), metadata="[]")]}
        response = httpx.post(
            f"{address}/v2/models/m-detector/infer", json=body, headers={"X-Request-ID": "r-1"}, timeout=60
        )
        with grpc.insecure_channel(server.grpc_address) as channel:
            tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "contents": {"bytes_contents": [IMAGE]}}
            request = message("ModelInferRequest", model_name="detector", inputs=[tensor]).SerializeToString()
            call = cast("Any", channel).unary_unary("/inference.GRPCInferenceService/ModelInfer")
            assert b"predictions" in call(request, timeout=60)
        (output,) = response.json()["outputs"]
        assert {"label", "score", "xmin", "ymin", "xmax", "ymax"} == set(output["data"][0][0])
        assert output["parameters"] == {"metadata": "[]"}
        assert server.stop() == 0
        records = [json.loads(line) for line in server.log]
        (inference,) = (record for record in records if record.get("request_id") == "r-1")
        assert [inference[key] for key in ("event", "outcome", "model")] == ["inference", "ok", "detector"]
        (ready,) = (record for record in records if record["event"] == "server ready")
        assert (ready["address"], ready["chariot_protocol"]) == (server.address, "chariot-v2-kserve")
        assert ready["listeners"] == {
            "gRPC": server.grpc_address,
            "TensorFlow Serving": server.tensorflow_serving_address,
            "TensorFlow Serving gRPC": server.tensorflow_grpc_address,
        }


def test_settings_are_read_from_the_environment_of_chariot() -> None:
    variables = {"MODEL_DIR": str(DETECTOR), "UVICORN_PORT": "0", "CHARIOT_INFERENCE_PROTOCOL": "chariot-v2"}
    environment = {**os.environ, **variables, "DEFAULT_SCORE_THRESHOLD": "0.999"}
    with run_server("--no-grpc", environment=environment) as server:
        assert urlsplit(server.address).port not in (None, ServerSettings().port)
        headers = {"content-type": "image/jpeg"}
        response = httpx.post(f"{server.address}/infer", content=SCENE.read_bytes(), headers=headers, timeout=60)
        assert response.json() == {"output": []}
        assert "gRPC" not in "".join(server.log)
        headers["chariot-inference-parameters"] = '{"score_threshold": 0.5}'
        response = httpx.post(f"{server.address}/infer", content=SCENE.read_bytes(), headers=headers, timeout=60)
        assert response.json()["output"]


def test_demo_starts_with_three_lines_on_one_port() -> None:
    command = [sys.executable, "-m", "charioteer", "serve", "--demo", "--port", "0", "--log-format", "console"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(3)]
        process.terminate()
    assert lines.pop(0) == "Loading 6 models ...\n"
    assert re.fullmatch(r"Charioteer answers at http://127\.0\.0\.1:\d+, also for a browser\n", lines[0])
    assert lines[1].startswith("Models: classifier, detector, ")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("--port 8123 --grpc-port 8123", "HTTP and gRPC need different ports"),
        ("--port {used}", r"127.0.0.1:{used}: Address already in use\. .* with --port, or 0"),
        ("--tensorflow-grpc-port {used}", r"127.0.0.1:{used}: .* with --tensorflow-grpc-port, or 0"),
        (
            "--host 192.0.2.1 --insecure",
            "Cannot listen on 192.0.2.1: Cannot assign .*address of this machine in --host$",
        ),
    ],
)
def test_json_log_of_a_failed_start_holds_only_the_reason(arguments: str, reason: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        used = other.getsockname()[1]
        with run_server(*arguments.format(used=used).split()) as server:
            assert server.wait() == 1
            (line,) = map(json.loads, server.log)
    assert line["event"] == "server did not start"
    assert re.search(reason.format(used=used), line["reason"])


def test_process_exits_with_a_message_if_its_only_model_is_broken(tmp_path: Path) -> None:
    file = tmp_path / "broken.onnx"
    file.write_bytes((DETECTOR / "model.onnx").read_bytes()[:5000])
    with run_server("--model", str(file)) as server:
        assert server.wait() == 1
        last = json.loads(server.log[-1])
        assert last["event"] == "server did not start"
        assert last["reason"].startswith("no model could be loaded")
        assert "broken.onnx" in last["reason"]
        assert "Traceback" not in "".join(server.log)


def test_tensorflow_serving_port_answers_in_its_protocol_while_other_models_load(tmp_path: Path) -> None:
    shutil.copytree(DETECTOR, tmp_path / "models" / "detector")
    go_on = tmp_path / "go_on"
    code = f"""
        import pathlib, threading

        class Model:
            def __init__(self):
                while not pathlib.Path({str(go_on)!r}).exists():
                    threading.Event().wait(0.02)

            def predict(self, images):
                return [[] for _ in images]
        """
    write_model(tmp_path / "models" / "slow", code)
    (port,) = reserve_ports(1)
    url = f"http://127.0.0.1:{port}/v1/models/detector"
    body = {"instances": [{"b64": encode_base64(SCENE.read_bytes())}]}
    arguments = ["--model-repository", str(tmp_path / "models"), "--allow-code"]
    options = [*arguments, "--tensorflow-serving-port", str(port)]
    with run_server(*options) as server, httpx.Client(timeout=60) as client:
        wait_until(lambda: _is_available(client, url))
        while_loading = client.post(f"{url}:predict", json=body)
        go_on.touch()
        assert server.tensorflow_serving_address == f"http://127.0.0.1:{port}"
        assert while_loading.json() == client.post(f"{url}:predict", json=body).json()


def _is_available(client: httpx.Client, url: str) -> bool:
    try:
        return '"AVAILABLE"' in client.get(url).text
    except httpx.TransportError:
        return False
