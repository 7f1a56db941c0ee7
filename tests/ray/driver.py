"""A Ray in another process, and senders that keep it busy."""

import base64
import os
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from tests.ray.environment import python_with_ray
from tests.support.server_process import ROOT

SCENE = ROOT / "fixtures" / "images" / "scene.jpg"

_PATIENCE = 120.0


class Ray:
    """A Ray of its own on this machine.

    Args:
        port: where its proxy listens.
        folder: where it is started.
        environment: of its processes.
    """

    def __init__(self, python: Path, port: int, folder: Path, environment: Mapping[str, str]) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.process = subprocess.Popen(
            [str(python), "-m", "tests.ray.cluster", str(port)],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def tell(self, order: str, **arguments: object) -> Any:
        """Have one of the orders of `tests.ray.cluster` carried out, and return its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(msgspec.json.encode({"do": order, **arguments}) + b"\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, "Ray ended"
        return msgspec.json.decode(line)

    def deploy(self, arguments: Mapping[str, object], user_config: Mapping[str, object] | None = None) -> None:
        """Deploy the application."""
        assert self.tell("deploy", arguments=arguments, user_config=user_config) == "RUNNING"

    def infer(self, model: str, picture: Path = SCENE, **parameters: object) -> Any:
        """The records of a model about a picture."""
        answer = httpx.post(f"{self.address}/v2/models/m-{model}/infer", content=body(picture, parameters), timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.json()["outputs"][0]["data"][0]

    def until(self, holds: Callable[[], bool]) -> bool:
        """Ask again and again, while senders go on, whether something is so."""
        end = time.monotonic() + _PATIENCE
        turn = threading.Event()
        while not holds():
            if time.monotonic() > end:
                return False
            turn.wait(0.1)
        return True


class Senders:
    """Threads that send one request after the other, and send again what was not answered.

    Attributes:
        answers: how often which number of records came.
        retries: how often something was sent again.
        lost: what was not answered after all.
    """

    def __init__(self, address: str, model: str, count: int) -> None:
        self.answers: Counter[int] = Counter()
        self.retries = 0
        self.lost: list[str] = []
        self._url = f"{address}/v2/models/m-{model}/infer"
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._send) for _ in range(count)]

    def start(self) -> None:
        for each in self._threads:
            each.start()

    def end(self) -> None:
        self._end.set()
        for each in self._threads:
            each.join()

    def _send(self) -> None:
        content = body(SCENE, {})
        with httpx.Client(timeout=60) as client:
            while not self._end.is_set():
                fault = ""
                for attempt in range(6):
                    if attempt:
                        with self._lock:
                            self.retries += 1
                        self._end.wait(0.2 * 2**attempt)
                    try:
                        answer = client.post(self._url, content=content)
                    except httpx.TransportError as error:
                        fault = repr(error)
                        continue
                    if answer.status_code == 200:
                        with self._lock:
                            self.answers[len(answer.json()["outputs"][0]["data"][0])] += 1
                        break
                    fault = f"{answer.status_code} {answer.text}"
                else:
                    with self._lock:
                        self.lost.append(fault)


@contextmanager
def sending(ray: Ray, model: str, count: int = 4) -> Generator[Senders]:
    """Senders that have had an answer each on average, to begin with."""
    senders = Senders(ray.address, model, count)
    senders.start()
    try:
        assert ray.until(lambda: senders.answers.total() >= count or len(senders.lost) > 0)
        yield senders
    finally:
        senders.end()


@contextmanager
def started(folder: Path) -> Generator[Ray]:
    """A Ray that was started in `folder`, ended with all of its processes."""
    python = python_with_ray()
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "CHARIOTEER_LOG_FORMAT": "json",
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    cluster = Ray(python, port, folder, environment)
    try:
        yield cluster
    finally:
        assert cluster.process.stdin is not None
        assert cluster.process.stdout is not None
        cluster.process.stdin.close()
        try:
            cluster.process.wait(30)
        except subprocess.TimeoutExpired:
            cluster.process.kill()
            cluster.process.wait()
        cluster.process.stdout.close()


def body(picture: Path, parameters: Mapping[str, object]) -> bytes:
    """A request about one picture."""
    data = base64.b64encode(picture.read_bytes()).decode()
    tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [data], "parameters": parameters}
    return msgspec.json.encode({"inputs": [tensor]})
