"""Record which functions of the product one detection runs in a warm server.

``python -m tests.support.request_trace`` prints them, and the table of docs/architecture.md. The calls do not depend on
the speed of the machine.
"""

import asyncio
import base64
import inspect
import json
import os
import runpy
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import msgspec

ROOT = Path(__file__).parents[2]
_MODEL, _IMAGE = "fixtures/models/detector", "fixtures/images/scene.jpg"
_PATH = "/v2/models/m-detector/infer"
_PACKAGES = tuple(f"{ROOT / package}{os.sep}" for package in ("app", "tasks", "metadata"))
_GENERATED = ("<lambda>", "<module>", "<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")
"""Code that belongs to the function around it."""
_WARM_UP, _REQUESTS = 30, 9
_REST_SECONDS = 0.03
"""After a response, for what the server does behind it; its observers get several requests at once."""

_THREADS = ("MainThread", "inference-")
"""Prefixes of the names of threads that answer requests."""

_Place = tuple[CodeType, CodeType | None]
"""Code that ran, and the nearest code of the product that called it."""


class Step(msgspec.Struct, frozen=True):
    """A function on the way of a request: file, qualified name, its lines, and its callers in the product."""

    file: str
    name: str
    lines: int
    callers: tuple[tuple[str, str], ...]


class Trace(msgspec.Struct, frozen=True):
    """The functions that most requests run, in the order of their first call."""

    steps: list[Step]

    @property
    def files(self) -> list[str]:
        """Return the files, in the order of their first call."""
        return list(dict.fromkeys(step.file for step in self.steps))

    @property
    def way(self) -> list[tuple[str, str]]:
        """Return file and name of the functions that call a function of another file."""
        callers = {caller for step in self.steps for caller in step.callers if caller[0] != step.file}
        return [(step.file, step.name) for step in self.steps if (step.file, step.name) in callers]


def trace_detection() -> Trace:
    """Trace a detection over chariot-v2-kserve: a JPEG, on a connection that stays open, without recording."""
    command = [sys.executable, "-m", "tests.support.request_trace", "--serve"]
    output = subprocess.run(command, cwd=ROOT, capture_output=True, check=True, timeout=180).stdout
    return msgspec.json.decode(output, type=Trace)


class _Recorder:
    """A profile function for all threads, which records code while `places` is a dict."""

    def __init__(self) -> None:
        self.places: dict[_Place, None] | None = None

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or self.places is None or not frame.f_code.co_filename.startswith(_PACKAGES):
            return
        if threading.current_thread().name.startswith(_THREADS) and not _is_other_task():
            caller = frame.f_back
            while caller is not None and not caller.f_code.co_filename.startswith(_PACKAGES):
                caller = caller.f_back
            self.places.setdefault((frame.f_code, caller.f_code if caller is not None else None))


def _is_other_task() -> bool:
    """Return whether a task runs that is no request: a periodic one."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return False
    return task is not None and getattr(task.get_coro(), "__name__", "") != "run_asgi"


def _serve() -> None:
    """Serve the model in this process, trace requests to it, and print the trace."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    recorder = _Recorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    threading.Thread(target=_request, args=(port, recorder), daemon=True).start()
    sys.argv = ["charioteer", "serve", _MODEL, "--port", str(port), "--log-format", "json"]
    runpy.run_module("app", run_name="__main__")


def _request(port: int, recorder: _Recorder) -> None:
    sys.setprofile(None)
    try:
        send = _sender(_connect(port))
        answered = 0
        while answered < _WARM_UP:
            # Before the model is loaded, the status is 503.
            answered += send() == 200
        traced: list[dict[_Place, None]] = []
        for _ in range(_REQUESTS):
            time.sleep(_REST_SECONDS)
            recorder.places = {}
            send()
            time.sleep(_REST_SECONDS)
            traced.append(recorder.places)
            recorder.places = None
        sys.stdout.buffer.write(msgspec.json.encode(_trace(traced)))
        sys.stdout.flush()
    finally:
        os._exit(0)


def _connect(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=60)
        except ConnectionRefusedError:
            time.sleep(_REST_SECONDS)


def _sender(connection: socket.socket) -> Callable[[], int]:
    image = base64.b64encode((ROOT / _IMAGE).read_bytes()).decode()
    tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "data": [image], "parameters": {"action": "predict"}}
    body = json.dumps({"inputs": [tensor]}).encode()
    head = (
        f"POST {_PATH} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\nAccept-Encoding: gzip, deflate\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    received = connection.makefile("rb")

    def send() -> int:
        """Return the status of the response."""
        connection.sendall(head.encode() + body)
        status, length = received.readline(), 0
        while (line := received.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        received.read(length)
        return int(status.split()[1])

    return send


def _trace(traced: list[dict[_Place, None]]) -> Trace:
    """Return what more than half of the requests ran: a slow network may cut a request into more packets."""
    counts = Counter(place for places in traced for place in places)
    usual = [place for places in traced for place in places if counts[place] > len(traced) // 2]
    callers: dict[tuple[str, str], set[tuple[str, str]]] = {}
    lines: dict[tuple[str, str], int] = {}
    for code, caller in usual:
        if code.co_name in _GENERATED:
            continue
        key = _key(code)
        lines[key] = len(inspect.getsourcelines(code)[0])
        callers.setdefault(key, set()).update([_key(caller)] if caller is not None else [])
    return Trace([Step(*key, lines[key], tuple(sorted(found))) for key, found in callers.items()])


def _key(code: CodeType) -> tuple[str, str]:
    name = code.co_qualname
    for generated in _GENERATED:
        name = name.removesuffix(f".<locals>.{generated}")
    return code.co_filename.removeprefix(f"{ROOT}{os.sep}"), name


if __name__ == "__main__":
    if "--serve" in sys.argv:
        _serve()
    trace = trace_detection()
    for step in trace.steps:
        print(f"{step.file} {step.name} ({step.lines})")  # noqa: T201
    print(f"{len(trace.files)} files, {len(trace.steps)} functions; of the way:")  # noqa: T201
    for file, steps in groupby(trace.way, key=itemgetter(0)):
        print(f"|  | `{file}` | {', '.join(f'`{name}`' for _, name in steps)} |")  # noqa: T201
