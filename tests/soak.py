"""Send traffic over every protocol to a real server, inject ten faults, and check every answer and the store.

Usage: ``python -m tests.soak --minutes 10 --seed 7 --only "SIGKILL and restart"`` (``make soak``). The exit status is 1
if a request failed that no fault explains, an answer was wrong, an acknowledged inference is not recorded exactly once,
a traceback was logged, or the server did not recover.
"""

import argparse
import base64
import json
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import httpx
import msgspec

from app.core.proto import message_class
from tests.support.polling import wait_until
from tests.support.servers.ports import reserve_ports
from tests.support.servers.server_process import ROOT, ServerProcess

MODELS = ROOT / "fixtures" / "models"
STEADY, UNLOADED, REPLACED, BROKEN, ISOLATED = "half_plus_two", "unloaded", "replaced", "broken", "isolated"
POISON = -666.0
"""The number that ends the process of `ISOLATED`."""
READ_SECONDS = 0.25
"""Seconds until a sent request is read; a draining server answers every request that it has read."""
NO_ANSWER = 0
STOPPED = frozenset({NO_ANSWER, 404, 503})
"""Statuses around a restart: TensorFlow Serving's protocol has 404 for a model that is still loading."""
SENDERS = 8
BURST_SENDERS = 60
INFER = "/inference.GRPCInferenceService/ModelInfer"
GRPC_STATUSES = {"NOT_FOUND": 404, "RESOURCE_EXHAUSTED": 429, "UNAVAILABLE": 503, "DEADLINE_EXCEEDED": 504}
DOWN = ("failed to connect", "socket closed", "connection re", "goaway", "stream removed", "recvmsg", "sendmsg")
"""Messages of gRPC for calls that reached no server, with the status UNAVAILABLE."""
CLASS = """
import os


class Model:
    inputs = {"x": ("FP32", (-1,))}
    outputs = {"y": ("FP32", (-1,))}

    def predict(self, tensors):
        if (tensors["x"] == -666.0).any():
            os._exit(1)
        return {"y": tensors["x"] / 2 + 2}
"""


RECORDED = "SELECT request_id, count(*) FROM recordings WHERE error IS NULL GROUP BY request_id"
"""The number of recorded inferences by request id."""

Send = Callable[[str, float, str], Any]
"""Sends an inference of a model, a number and a request id, and returns the answer."""


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A fault: a context manager that injects and reverts it, and the failures that it explains.

    Attributes:
        inject: injects and reverts the fault.
        statuses: statuses that requests may get; `NO_ANSWER` for none.
        model: the only model whose requests may fail; empty for all.
        severed: whether requests may get no answer that were read before the fault.
    """

    inject: Callable[["Soak", random.Random], None]
    statuses: frozenset[int] = frozenset()
    model: str = ""
    severed: bool = False


class Entry(msgspec.Struct, frozen=True):
    """The result of one request: its status, and a note if the answer was wrong."""

    id: str
    surface: str
    model: str
    started: float
    ended: float
    status: int
    note: str = ""


class Window(msgspec.Struct, kw_only=True):
    """The time in which a fault explains failures."""

    kind: str
    fault: Fault
    started: float
    ended: float = float("inf")
    recovery: float = float("inf")

    def explains(self, entry: Entry) -> bool:
        """Return whether the fault may have caused the failure."""
        if entry.started > self.ended or entry.ended < self.started or self.fault.model not in ("", entry.model):
            return False
        read_before = entry.started < self.started - READ_SECONDS
        return entry.status in self.fault.statuses and (bool(entry.status) or self.fault.severed or not read_before)


class Soak:
    """A run: the server, its traffic, and the results.

    Attributes:
        fixed: the model of each surface that always sends the same request.
        entries: the results of all requests.
        windows: the faults so far.
        findings: sentences about other failures.
        addends: what `REPLACED` may add to half of its input now.
        options: more options of the server.
        expected: the answer of each surface that always gets the same request.
    """

    fixed: Mapping[str, str] = MappingProxyType({"chariot-v2-kserve": "detector"})

    def __init__(
        self, root: Path, seed: int, recovery_seconds: float, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.models, self.store = root / "models", root / "inferences.db"
        for name in (STEADY, "detector"):
            shutil.copytree(MODELS / name, self.models / name)
        for name in (UNLOADED, REPLACED, BROKEN):
            shutil.copytree(MODELS / STEADY, self.models / name)
        (self.models / ISOLATED).mkdir()
        (self.models / ISOLATED / "model.py").write_text(CLASS)
        settings = {"implementation": "model:Model", "task_type": "TENSOR", "isolate": True}
        (self.models / ISOLATED / "model-settings.json").write_text(json.dumps(settings))
        self.http, self.grpc, self.tensorflow = reserve_ports(3)
        self.entries: list[Entry] = []
        self.windows: list[Window] = []
        self.findings: list[str] = []
        self.logs: list[Sequence[str]] = []
        self.addends = frozenset({2.0})
        self.over = threading.Event()
        self.options: Sequence[str] = ("--record", str(self.store))
        self.expected: dict[str, object] = {}
        self._seed, self._recovery_seconds = seed, recovery_seconds
        self.image = base64.b64encode((ROOT / "fixtures" / "images" / "scene.jpg").read_bytes()).decode()
        self._channel: Any = grpc.insecure_channel(
            f"127.0.0.1:{self.grpc}",
            options=[("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 200)],
        )
        # Threads share the client; each request has a connection of its own while it lasts.
        self._client = httpx.Client(timeout=60, limits=httpx.Limits(max_connections=None), headers=headers)
        self._headers = headers

    def start(self) -> None:
        """Start the server, and wait until it is ready."""
        self.server = ServerProcess(
            "--model-repository", str(self.models), "--allow-code", "--repository-poll-seconds", "0.5",
            "--port", str(self.http), "--grpc-port", str(self.grpc), "--tensorflow-serving-port", str(self.tensorflow),
            "--drain-timeout", "20", *self.options,
        )  # fmt: skip
        self.logs.append(self.server.log)
        wait_until(lambda: self.server.process.poll() is not None or self._is_ready(), 180)
        if self.server.process.poll() is not None:
            raise RuntimeError("".join(self.server.log[-5:]))

    def learn(self) -> None:
        """Keep the answers to the fixed requests, which later answers must equal."""
        self.expected = {name: self.surfaces()[name](model, 0.0, "first") for name, model in self.fixed.items()}

    def stop(self, number: int, expected: int) -> None:
        """Send a signal, and wait until the server has exited."""
        self.server.process.send_signal(number)
        if (status := self.server.wait()) != expected:
            self.findings.append(f"After {signal.Signals(number).name} the server ended with {status}")

    def post(self, path: str) -> httpx.Response:
        """Call the repository or the health API."""
        return self._post(path, None, "fault")

    def number(self, model: str, x: float) -> int:
        """Return the status of a V2 inference of one number."""
        return self._post(f"/v2/models/{model}/infer", _v2(x), "fault").status_code

    def adds(self, addend: float) -> bool:
        """Return whether `REPLACED` adds this number now."""
        return self._json(f"/v1/models/{REPLACED}:predict", {"instances": [0.0]}, "fault")["predictions"] == [addend]

    def send_until_over(self, index: int, until: Callable[[], bool]) -> None:
        """Send requests one after the other."""
        chance = random.Random(self._seed * 1000 + index)
        while not until():
            surface, send = chance.choice(list(self.surfaces().items()))
            model = self.fixed.get(surface) or chance.choice((STEADY, UNLOADED, REPLACED, BROKEN, ISOLATED))
            self._send(surface, model, send, chance)

    def cause(self, kind: str, chance: random.Random, fault: Fault | None = None) -> None:
        """Inject a fault, by default the one of `FAULTS`, and record when the server has recovered."""
        window = Window(kind=kind, fault=fault or FAULTS[kind], started=time.monotonic())
        self.windows.append(window)
        try:
            window.fault.inject(self, chance)
            reverted = time.monotonic()
            wait_until(self._has_recovered, self._recovery_seconds)
            window.recovery = time.monotonic() - reverted
        except Exception as error:  # noqa: BLE001  the run continues
            self.findings.append(f"{kind}: {type(error).__name__}: {error}")
        time.sleep(1)
        window.ended = time.monotonic()

    def close(self) -> None:
        """End the server, if it still runs, and all connections."""
        self.server.process.kill()
        self.server.wait()
        self._client.close()
        self._channel.close()

    def failures(self) -> Iterator[str]:
        """Return the reasons for which the run fails."""
        yield from self.findings
        for entry in self.entries:
            if entry.note or (entry.status != 200 and not any(window.explains(entry) for window in self.windows)):
                yield f"{entry.surface}, {entry.model}: {entry.status} {entry.note} (request {entry.id})"
        rows = self.recorded()
        recorded = [entry for entry in self.entries if entry.status == 200]
        yield from (f"request {entry.id}: {n} rows" for entry in recorded if (n := rows.get(entry.id, 0)) != 1)
        for line in (line for log in self.logs for line in log):
            with suppress(ValueError):
                if "exception" not in json.loads(line):
                    continue
            yield f"log: {line[:2000]}"

    def recorded(self) -> Mapping[str, int]:
        """Return the number of recorded inferences by request id."""
        with closing(sqlite3.connect(f"file:{self.store}?mode=ro", uri=True)) as connection:
            return dict(connection.execute(RECORDED))

    def surfaces(self) -> Mapping[str, Send]:
        """Return what sends a request, by the name of its protocol or feature."""
        return {
            "chariot-v2-kserve": lambda model, _, key: self.infer_image(model, key, {}),
            "kserve-v2": lambda model, x, key: self._data(model, _v2(x), key)[0],
            "kserve-v1": self._kserve_v1,
            "tensorflow-serving": lambda model, x, key: self._kserve_v1(model, x, key, self.tensorflow),
            "grps": self._grps,
            "kserve-v2, gRPC": self._grpc,
        }

    def infer_image(self, model: str, key: str, parameters: object) -> Any:
        """Return the records of the image."""
        image = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [self.image], "parameters": parameters}
        return self._data(f"m-{model}", {"inputs": [image]}, key)

    def _send(self, surface: str, model: str, send: Send, chance: random.Random) -> None:
        request_id, x = f"{chance.getrandbits(64):x}", float(chance.randrange(10_000))
        before, started = self.addends, time.monotonic()
        note = ""
        try:
            answer = send(model, x, request_id)
            status = 200
            addends = before | self.addends if model == REPLACED else {2.0}
            if surface in self.expected:
                note = "" if answer == self.expected[surface] else f"answered {str(answer)[:100]}"
            elif answer not in [x / 2 + addend for addend in addends]:
                note = f"answered {answer} to {x}"
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
        except httpx.HTTPError:
            status = NO_ANSWER
        except grpc.RpcError as error:
            failed: Any = error
            details = (failed.details() or "").lower()
            down = failed.code() is grpc.StatusCode.UNAVAILABLE and any(words in details for words in DOWN)
            status = NO_ANSWER if down else GRPC_STATUSES.get(failed.code().name, 500)
        self.entries.append(Entry(request_id, surface, model, started, time.monotonic(), status, note))
        if status == NO_ANSWER:
            time.sleep(0.1)

    def _data(self, model: str, body: object, key: str) -> Any:
        return self._json(f"/v2/models/{model}/infer", body, key)["outputs"][0]["data"]

    def _kserve_v1(self, model: str, x: float, key: str, port: int = 0) -> Any:
        return self._json(f"/v1/models/{model}:predict", {"instances": [x]}, key, port)["predictions"][0]

    def _grps(self, model: str, x: float, key: str) -> float:
        tensor = {"name": "x", "dtype": "DT_FLOAT32", "shape": [1], "flat_float32": [x]}
        reply = self._json("/grps/v1/infer/predict", {"model": model, "gtensors": {"tensors": [tensor]}}, key)
        return reply["gtensors"]["tensors"][0]["flat_float32"][0]

    def _grpc(self, model: str, x: float, key: str) -> float:
        request: Any = message_class("inference.ModelInferRequest")(model_name=model)
        request.inputs.add(name="x", datatype="FP32", shape=[1]).contents.fp32_contents.append(x)
        call = self._channel.unary_unary(INFER)
        answer = call(request.SerializeToString(), timeout=60, metadata=(("x-request-id", key), *self._headers.items()))
        reply: Any = message_class("inference.ModelInferResponse").FromString(answer)
        return reply.outputs[0].contents.fp32_contents[0]

    def _json(self, path: str, body: object, key: str, port: int = 0) -> Any:
        return self._post(path, body, key, port).raise_for_status().json()

    def _post(self, path: str, body: object, key: str, port: int = 0) -> httpx.Response:
        url = f"http://127.0.0.1:{port or self.http}{path}"
        return self._client.post(url, json=body, headers={"X-Request-ID": key})

    def _is_ready(self) -> bool:
        with suppress(httpx.HTTPError):
            return httpx.get(f"http://127.0.0.1:{self.http}/ready").status_code == 200
        return False

    def _has_recovered(self) -> bool:
        with suppress(httpx.HTTPError):
            return self._is_ready() and {self.number(name, 1.0) for name in (STEADY, UNLOADED, BROKEN, ISOLATED)} == {
                200
            }
        return False


def _v2(x: float) -> object:
    return {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [x]}]}


def _put(soak: Soak, model: str, content: bytes) -> None:
    """Replace the file atomically, as users must."""
    part = soak.models / model / ".part"
    part.write_bytes(content)
    part.replace(soak.models / model / "model.onnx")


def _unload(soak: Soak, _: random.Random) -> None:
    for verb in ("unload", "load"):
        soak.post(f"/v2/repository/models/{UNLOADED}/{verb}").raise_for_status()
        time.sleep(0.5)


def _replace(soak: Soak, _: random.Random) -> None:
    for name, addend in (("half_plus_three", 3.0), (STEADY, 2.0)):
        soak.addends |= {addend}
        _put(soak, REPLACED, (MODELS / name / "model.onnx").read_bytes())
        wait_until(partial(soak.adds, addend))
        soak.addends = frozenset({addend})


def _break(soak: Soak, chance: random.Random) -> None:
    content = (MODELS / STEADY / "model.onnx").read_bytes()
    for data in (chance.choice([b"", content[: len(content) // 2], chance.randbytes(1000)]), content):
        _put(soak, BROKEN, data)
        time.sleep(1.5)


def _crash(soak: Soak, _: random.Random) -> None:
    if (status := soak.number(ISOLATED, POISON)) != 503:
        soak.findings.append(f"A model that ended its process was answered for with {status}")


def _burst(soak: Soak, _: random.Random) -> None:
    end = time.monotonic() + 3
    with senders(soak, BURST_SENDERS, lambda: time.monotonic() > end):
        pass


def _pause(soak: Soak, _: random.Random) -> None:
    soak.server.process.send_signal(signal.SIGSTOP)
    time.sleep(2)
    soak.server.process.send_signal(signal.SIGCONT)


def _restart(number: int, expected: int) -> Callable[[Soak, random.Random], None]:
    def inject(soak: Soak, _: random.Random) -> None:
        soak.stop(number, expected)
        soak.start()

    return inject


def _fill(soak: Soak, _: random.Random) -> None:
    """Limit the size of files to one byte, so that writes fail as on a full disk."""
    pid = soak.server.process.pid
    soft, hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, hard))
    time.sleep(2)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (soft, hard))


def _lock(soak: Soak, _: random.Random) -> None:
    with closing(sqlite3.connect(soak.store, isolation_level=None, timeout=10)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        time.sleep(4)
        connection.execute("ROLLBACK")


FAULTS: Mapping[str, Fault] = {
    "model unloaded and loaded": Fault(inject=_unload, statuses=frozenset({404, 503}), model=UNLOADED),
    "model replaced and back": Fault(inject=_replace),
    "model's file broken and mended": Fault(inject=_break),
    "isolated model crashes": Fault(inject=_crash, statuses=frozenset({404, 503}), model=ISOLATED),
    "eight times the load": Fault(inject=_burst, statuses=frozenset({429})),
    "SIGTERM and restart": Fault(inject=_restart(signal.SIGTERM, 0), statuses=STOPPED),
    "SIGKILL and restart": Fault(inject=_restart(signal.SIGKILL, -signal.SIGKILL), statuses=STOPPED, severed=True),
    "SIGSTOP for two seconds": Fault(inject=_pause, statuses=frozenset({429})),
    "disk full": Fault(inject=_fill, statuses=frozenset({503, 429})),
    "store locked": Fault(inject=_lock, statuses=frozenset({503, 429})),
}


@contextmanager
def senders(soak: Soak, count: int, until: Callable[[], bool]) -> Generator[None]:
    """Send with `count` threads until the condition holds."""
    offset = len(soak.entries) + count
    threads = [threading.Thread(target=soak.send_until_over, args=[offset + index, until]) for index in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.join()


def run(
    seconds: float, seed: int, kinds: Sequence[str] = (), recovery_seconds: float = 20
) -> tuple[Soak, Sequence[str]]:
    """Run faults in random order until the time is over and each has occurred; return the run and its failures.

    A server that has not recovered `recovery_seconds` after a fault is a failure.
    """
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        soak = Soak(Path(folder), seed, recovery_seconds)
        started = time.monotonic()
        try:
            soak.start()
            soak.learn()
            with senders(soak, SENDERS, soak.over.is_set):
                try:
                    while not soak.windows or time.monotonic() - started < seconds:
                        for kind in chance.sample(list(kinds or FAULTS), len(kinds or FAULTS)):
                            print(f"{time.monotonic() - started:6.0f} s  {kind}", flush=True)
                            soak.cause(kind, chance)
                finally:
                    soak.over.set()
            soak.stop(signal.SIGTERM, 0)
        finally:
            soak.close()
        return soak, list(soak.failures())


def main() -> None:
    """Run, and print a table of protocols and of faults, and every failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=int(time.time()) % 100_000)
    parser.add_argument("--only", nargs="*", default=[], choices=list(FAULTS), metavar="FAULT", help=", ".join(FAULTS))
    arguments = parser.parse_args()
    print(f"Seed {arguments.seed}, {arguments.minutes:g} minutes", flush=True)
    soak, failures = run(arguments.minutes * 60, arguments.seed, arguments.only)
    for surface in sorted({entry.surface for entry in soak.entries}):
        statuses = Counter(entry.status for entry in soak.entries if entry.surface == surface)
        print(f"{surface:20}", ", ".join(f"{count} x {status or 'none'}" for status, count in statuses.most_common()))
    for kind in FAULTS:
        times = [window.recovery for window in soak.windows if window.kind == kind]
        print(f"{kind:32}{len(times):4} times, recovered after at most {max(times, default=0):.2f} s")
    print(*[f"FAILED  {failure}" for failure in failures[:50]], "FAILED" if failures else "PASSED", sep="\n")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
