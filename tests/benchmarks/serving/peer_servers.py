"""Start other servers with the same model, each as its documentation does and in its own environment."""

import base64
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from tests.benchmarks.serving.processes import ROOT, RunningServer, run_server
from tests.support.servers.ports import reserve_ports

_FOLDER = Path(__file__).parent / "others"
_ENVIRONMENTS = ROOT / ".venv-peers"
_MODULE = "tests.benchmarks.serving.others"


def _mlserver(port: int, folder: Path) -> Mapping[str, str]:
    model = folder / "mlserver"
    model.mkdir(exist_ok=True)
    settings = {"name": "model", "implementation": f"{_MODULE}.with_mlserver.VisionModel"}
    (model / "model-settings.json").write_bytes(msgspec.json.encode(settings))
    grpc, metrics = map(str, reserve_ports(2))
    ports = {"MLSERVER_HTTP_PORT": str(port), "MLSERVER_GRPC_PORT": grpc, "MLSERVER_METRICS_PORT": metrics}
    return {"MLSERVER_HOST": "127.0.0.1", "MLSERVER_MODEL": str(model), **ports}


def _bentoml(port: int, folder: Path) -> Mapping[str, str]:
    del port
    return {"BENTOML_DO_NOT_TRACK": "True", "BENTOML_HOME": str(folder / "bentoml")}


class Peer(msgspec.Struct, frozen=True):
    """The command and request of another server.

    `command` takes the folder of programs and a port, `body` an image, and `environment` a port and a writable folder.
    The path `health` returns 200 once the server is ready; `target` is the path of inference requests.
    """

    title: str
    command: Callable[[Path, int], list[str]]
    health: str
    target: str
    body: Callable[[bytes], bytes]
    environment: Callable[[int, Path], Mapping[str, str]] = lambda _, __: {}


def _v2(image: bytes) -> bytes:
    tensor = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [base64.b64encode(image).decode()]}
    return msgspec.json.encode({"inputs": [tensor]})


def _json_image(image: bytes) -> bytes:
    return msgspec.json.encode({"image": base64.b64encode(image).decode()})


def _own_program(name: str) -> Callable[[Path, int], list[str]]:
    return lambda programs, port: [str(programs / "python"), "-m", f"{_MODULE}.{name}", str(port)]


_V2_MODEL = "/v2/models/model"
PEERS = {
    "fastapi": Peer(
        "FastAPI, as Striveworks' public engines",
        lambda programs, port: [
            str(programs / "uvicorn"), f"{_MODULE}.with_fastapi:app", "--port", str(port), "--log-level", "warning",
        ],
        "/ready", "/infer", _v2,
    ),
    "mlserver": Peer(
        "MLServer",
        lambda programs, _: ["sh", "-c", f'exec "{programs}/mlserver" start "$MLSERVER_MODEL"'],
        f"{_V2_MODEL}/ready", f"{_V2_MODEL}/infer", _v2, _mlserver,
    ),
    "kserve": Peer(
        "KServe's SDK", _own_program("with_kserve"), f"{_V2_MODEL}/ready", f"{_V2_MODEL}/infer", _v2,
    ),
    "litserve": Peer("LitServe", _own_program("with_litserve"), "/health", "/predict", _json_image),
    "bentoml": Peer(
        "BentoML",
        lambda programs, port: [
            str(programs / "bentoml"), "serve", f"{_MODULE}.with_bentoml:VisionModel", "--port", str(port),
        ],
        "/readyz", "/classify", _json_image, _bentoml,
    ),
    "ray": Peer(
        "Ray Serve", _own_program("with_ray"), "/-/healthz", "/", _json_image,
        lambda _, __: {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"},
    ),
}  # fmt: skip


@contextmanager
def run_peer(peer: Peer, programs: Path, model: Path, folder: Path, kind: str) -> Iterator[RunningServer]:
    """Run a server with a model's graph and a kind of pipeline: `plain` or `ours`. It may write into `folder`."""
    (port,) = reserve_ports(1)
    environment = {"MODEL": str(model), "PIPELINE": kind, "PYTHONPATH": str(ROOT), **peer.environment(port, folder)}
    health = f"http://127.0.0.1:{port}{peer.health}"
    with run_server(peer.command(programs, port), {"http": port}, health, environment) as server:
        yield server


@contextmanager
def run_bare(models: Mapping[str, Path]) -> Iterator[RunningServer]:
    """Run the floor's work behind a bare ASGI handler, with the graphs of models by name."""
    (port,) = reserve_ports(1)
    command = [sys.executable, "-m", "uvicorn", f"{_MODULE}.bare_asgi:app", "--port", str(port), "--lifespan", "off"]
    environment = {"MODELS": ",".join(f"{name}={model}" for name, model in models.items())}
    health = f"http://127.0.0.1:{port}/"
    with run_server([*command, "--log-level", "warning"], {"http": port}, health, environment) as server:
        yield server


def install(name: str) -> Path:
    """Return the folder of programs in a server's environment; create it if needed.

    Raise CalledProcessError when it cannot be installed.
    """
    folder, requirements = _ENVIRONMENTS / name, _FOLDER / f"{name}.txt"
    stamp = folder / ".installed"
    if not stamp.exists() or stamp.read_text() != requirements.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True, capture_output=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--requirement", str(requirements)]
        subprocess.run(pip, check=True, capture_output=True)
        stamp.write_text(requirements.read_text())
    return folder / "bin"
