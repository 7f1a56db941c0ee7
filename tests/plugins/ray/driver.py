"""A Ray cluster in another process, and clients that keep it busy."""

import base64
import os
import subprocess
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.installed.environments import ray_environment
from tests.plugins.acme.process import PACKAGE
from tests.support.servers.server_process import ROOT

SCENE = ROOT / "fixtures" / "images" / "scene.jpg"

_TIMEOUT = 360.0


class Ray:
    """A Ray cluster on this machine.

    Args:
        python: interpreter that has Ray.
        folder: where it is started.
        environment: environment of its processes.
        log: file for its standard error.
    """

    def __init__(self, python: Path, folder: Path, environment: Mapping[str, str], log: Path) -> None:
        self._log = log
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(
                [str(python), "-m", "tests.plugins.ray.cluster"],
                cwd=folder,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
            )

    def wait_started(self) -> None:
        """Wait until its proxy accepts requests."""
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{self._read_result()}", timeout=_TIMEOUT)

    def run_command(self, name: str, **arguments: object) -> Any:
        """Run a command of `tests.plugins.ray.cluster` and return its result."""
        assert self.process.stdin is not None
        self.process.stdin.write(msgspec.json.encode({"do": name, **arguments}) + b"\n")
        self.process.stdin.flush()
        return self._read_result()

    def _read_result(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            pytest.fail(f"Ray ended with status {self.process.wait()}: {self._log_end()}")
        answer = msgspec.json.decode(line)
        if "error" in answer:
            pytest.fail(f"{answer['error']}\n{self._log_end()}")
        return answer["result"]

    def _log_end(self) -> str:
        return self._log.read_text(errors="replace")[-8000:]

    def deploy(self, arguments: Mapping[str, object], user_config: Mapping[str, object] | None = None) -> None:
        """Deploy the application."""
        assert self.run_command("deploy", arguments=arguments, user_config=user_config) == "RUNNING"

    def infer(self, model: str, image: Path = SCENE, **parameters: object) -> Any:
        """Return the records of a model for an image."""
        answer = self.client.post(f"/v2/models/m-{model}/infer", content=body(image, parameters))
        assert answer.status_code == 200, answer.text
        return answer.json()["outputs"][0]["data"][0]

    def wait_for(self, condition: Callable[[], bool]) -> bool:
        """Poll while clients send requests; return whether the condition became true in time."""
        deadline = time.monotonic() + _TIMEOUT
        pause = threading.Event()
        while not condition():
            if time.monotonic() > deadline:
                return False
            pause.wait(0.3)
        return True


class Clients:
    """Threads that send one request after the other, and retry those whose replica was lost, which get 500.

    Attributes:
        answers: number of answers by their number of records.
        answered: the request ids of the answers.
        retries: number of repeated requests.
        failed: errors of requests that failed in all attempts, or with another status.
    """

    def __init__(self, address: httpx.URL, model: str, count: int) -> None:
        self.answers: Counter[int] = Counter()
        self.answered: list[str] = []
        self.retries = 0
        self.failed: list[str] = []
        self._url = address.join(f"/v2/models/m-{model}/infer")
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(count)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _send(self) -> None:
        content = body(SCENE, {})
        with httpx.Client(timeout=_TIMEOUT) as client:
            while not self._stop.is_set():
                error_text, request_id = "", uuid.uuid4().hex
                for attempt in range(6):
                    if attempt:
                        with self._lock:
                            self.retries += 1
                        self._stop.wait(0.2 * 2**attempt)
                    try:
                        answer = client.post(self._url, content=content, headers={"X-Request-ID": request_id})
                        error_text = f"{answer.status_code} {answer.text:.200}"
                    except httpx.TransportError as error:
                        self._fail(repr(error))
                        break
                    if answer.status_code == 200:
                        # Leave the processor to the replicas that start.
                        self._stop.wait(0.05)
                        with self._lock:
                            self.answers[len(answer.json()["outputs"][0]["data"][0])] += 1
                            self.answered.append(request_id)
                        break
                    if answer.status_code not in (500, 503):
                        self._fail(error_text)
                        break
                else:
                    self._fail(error_text)

    def _fail(self, error_text: str) -> None:
        with self._lock:
            self.failed.append(error_text)


@contextmanager
def traffic(ray: Ray, model: str, count: int = 4) -> Generator[Clients]:
    """Run clients; yield them once they have `count` answers in total."""
    clients = Clients(ray.client.base_url, model, count)
    clients.start()
    try:
        assert ray.wait_for(lambda: clients.answers.total() >= count or len(clients.failed) > 0)
        yield clients
    finally:
        clients.stop()


@contextmanager
def start_ray(folder: Path) -> Generator[Ray]:
    """Start Ray in `folder`; stop it with all its processes afterwards. Its log is beside the folder."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{PACKAGE}",
        "CHARIOTEER_PLUGINS": "acme",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        # A busy machine needs longer than Ray's defaults, which are 5 to 60 seconds; Ray kills a proxy that is late.
        "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "300",
        "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "300",
        "RAY_gcs_server_port_wait_time_s": "300",
        "RAY_raylet_start_wait_time_s": "300",
        "RAY_worker_register_timeout_seconds": "300",
        "RAY_agent_register_timeout_ms": "300000",
        # Idle workers would import Ray for nothing.
        "RAY_enable_worker_prestart": "0",
        "RAY_prestart_worker_first_driver": "0",
        "CHARIOTEER_LOG_FORMAT": "json",
    }
    cluster = Ray(ray_environment().python, folder, environment, folder.with_suffix(".log"))
    try:
        cluster.wait_started()
        with cluster.client:
            yield cluster
    finally:
        assert cluster.process.stdin is not None
        assert cluster.process.stdout is not None
        cluster.process.stdin.close()
        try:
            cluster.process.wait(120)
        except subprocess.TimeoutExpired:
            cluster.process.kill()
            cluster.process.wait()
        cluster.process.stdout.close()


def body(image: Path, parameters: Mapping[str, object]) -> bytes:
    """Return a request for one image."""
    data = base64.b64encode(image.read_bytes()).decode()
    tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [data], "parameters": parameters}
    return msgspec.json.encode({"inputs": [tensor]})
