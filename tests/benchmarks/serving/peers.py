"""Measure other servers with the same model and image, each started as its documentation does."""

import base64
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.benchmarks.serving.cost import cost, measure_server
from tests.benchmarks.serving.encodings import chariot
from tests.benchmarks.serving.load import BenchmarkRequest, send
from tests.benchmarks.serving.processes import ROOT, RunningServer, charioteer, free_port, run_server
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.workload import Workload

__all__ = ("peers",)

_FOLDER = Path(__file__).parent / "others"
_ENVIRONMENTS = ROOT / ".venv-peers"
_MODULE = "tests.benchmarks.serving.others"
_LONGEST_REASON = 120


def _no_environment(port: int, folder: Path) -> Mapping[str, str]:
    del port, folder
    return {}


def _mlserver(port: int, folder: Path) -> Mapping[str, str]:
    model = folder / "mlserver"
    model.mkdir(exist_ok=True)
    settings = {"name": "classifier", "implementation": f"{_MODULE}.with_mlserver.Classifier"}
    (model / "model-settings.json").write_bytes(msgspec.json.encode(settings))
    ports = {name: str(free_port()) for name in ("MLSERVER_GRPC_PORT", "MLSERVER_METRICS_PORT")}
    return {"MLSERVER_HTTP_PORT": str(port), "MLSERVER_HOST": "127.0.0.1", "MLSERVER_MODEL": str(model), **ports}


def _bentoml(port: int, folder: Path) -> Mapping[str, str]:
    del port
    return {"BENTOML_DO_NOT_TRACK": "True", "BENTOML_HOME": str(folder / "bentoml")}


class Peer(msgspec.Struct, frozen=True):
    """The command and request of another server.

    Attributes:
        title: name in the table.
        command: returns the command, from the folder of programs and a port.
        health: path that returns 200 once it is ready.
        target: path of inference requests.
        body: builds a request body from an image.
        environment: returns environment variables, from a port and a writable folder.
    """

    title: str
    command: Callable[[Path, int], list[str]]
    health: str
    target: str
    body: Callable[[bytes], bytes]
    environment: Callable[[int, Path], Mapping[str, str]] = _no_environment


def _v2(image: bytes) -> bytes:
    tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [base64.b64encode(image).decode()]}
    return msgspec.json.encode({"inputs": [tensor]})


def _json_image(image: bytes) -> bytes:
    return msgspec.json.encode({"image": base64.b64encode(image).decode()})


_PEERS = {
    "fastapi": Peer(
        "FastAPI, as Striveworks' public engines",
        lambda programs, port: [
            str(programs / "uvicorn"), f"{_MODULE}.with_fastapi:app", "--port", str(port), "--log-level", "warning",
        ],
        "/ready",
        "/infer",
        _v2,
    ),
    "mlserver": Peer(
        "MLServer",
        lambda programs, _: ["sh", "-c", f'exec "{programs}/mlserver" start "$MLSERVER_MODEL"'],
        "/v2/models/classifier/ready",
        "/v2/models/classifier/infer",
        _v2,
        _mlserver,
    ),
    "kserve": Peer(
        "KServe's SDK",
        lambda programs, port: [str(programs / "python"), "-m", f"{_MODULE}.with_kserve", str(port)],
        "/v2/models/classifier/ready",
        "/v2/models/classifier/infer",
        _v2,
    ),
    "litserve": Peer(
        "LitServe",
        lambda programs, port: [str(programs / "python"), "-m", f"{_MODULE}.with_litserve", str(port)],
        "/health",
        "/predict",
        _json_image,
    ),
    "bentoml": Peer(
        "BentoML",
        lambda programs, port: [
            str(programs / "bentoml"), "serve", f"{_MODULE}.with_bentoml:Classifier", "--port", str(port),
        ],
        "/readyz",
        "/classify",
        _json_image,
        _bentoml,
    ),
}  # fmt: skip


def peers(workload: Workload, rounds: int, requests: int) -> Section:
    """Compare the CPU of the same inference in other servers, with a plain pipeline and with the floor's."""
    rows: list[list[Cell]] = []
    image = workload.images["vga"]
    with charioteer("--model", str(workload.folder / "small")) as ours:
        own = chariot(ours.ports["http"], "small", image)
        send(own, 50, 4)
        for name, peer in _PEERS.items():
            try:
                programs = _environment(name)
                for kind, label in (("plain", "as documented"), ("ours", "with our pipeline")):
                    with _peer(peer, programs, workload, kind) as server:
                        request = BenchmarkRequest(server.ports["http"], peer.target, peer.body(image.read_bytes()))
                        send(request, 50, 4)
                        costs = cost(
                            rounds,
                            theirs=measure_server(server, request, requests, 8),
                            ours=measure_server(ours, own, requests, 8),
                        )
                        ratio = costs["theirs"].median / costs["ours"].median
                        load_result = costs["theirs"].load_result
                        assert load_result is not None
                        medians = [costs["theirs"].median, costs["ours"].median]
                        rows.append([peer.title, label, *medians, ratio, load_result.rate, server.memory()[0], ""])
            except (RuntimeError, subprocess.CalledProcessError) as error:
                rows.append([peer.title, "", None, None, None, None, None, _reason(error)])
    about = (
        "CPU milliseconds of a request of all processes of each server, measured in turns with ours. Small model, "
        "VGA image, 8 connections, one ONNX Runtime thread. *As documented* is a custom model from the server's "
        "documentation, with a plain pipeline of OpenCV and NumPy. *With our pipeline* uses the floor's pipeline "
        "and allocator, so that only the server differs."
    )
    columns = ["server", "set up", "theirs", "ours", "theirs / ours", "requests/s", "RSS, MB", "remark"]
    return Section(title="Other servers", about=about, columns=columns, rows=rows)


@contextmanager
def _peer(peer: Peer, programs: Path, workload: Workload, kind: str) -> Iterator[RunningServer]:
    port = free_port()
    environment = {
        "MODEL": str(workload.model("small")),
        "PIPELINE": kind,
        "PYTHONPATH": str(ROOT),
        **peer.environment(port, workload.folder.parent),
    }
    health = f"http://127.0.0.1:{port}{peer.health}"
    with run_server(peer.command(programs, port), {"http": port}, health, environment) as server:
        yield server


def _environment(name: str) -> Path:
    """Return the folder of programs in a server's environment; create it if needed.

    Raises:
        CalledProcessError: when it cannot be installed.
    """
    folder, requirements = _ENVIRONMENTS / name, _FOLDER / f"{name}.txt"
    stamp = folder / ".installed"
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)]
        subprocess.run(pip, check=True, capture_output=True)
        stamp.write_text(requirements.read_text())
    return folder / "bin"


def _reason(error: Exception) -> str:
    output = error.stderr.decode(errors="replace") if isinstance(error, subprocess.CalledProcessError) else str(error)
    lines = [line for line in (output or str(error)).splitlines() if line.strip()]
    return f"not measured: {lines[-1][:_LONGEST_REASON]}" if lines else "not measured"
