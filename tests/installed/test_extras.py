"""Check each extra alone: its commands work with it, and name it when it is missing."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from app.plugins.drift.baseline import Baseline, write_baseline
from app.plugins.recording.stores.sqlite_store import SqliteStore
from tests.installed.environments import DEVELOPER_EXTRAS, EXTRAS, linked_environment
from tests.installed.workspace import Workspace, inference_request
from tests.plugins.access.jwt.issuer import AUDIENCE, ISSUER, key_set_file, token
from tests.support.data.drift_samples import sample
from tests.support.data.recorded_rows import recorded_rows
from tests.support.models import tiny_vision
from tests.support.servers.server_process import ROOT
from tests.support.servers.stand_in import run_otlp_collector

EXTRA_OF_COMMAND: Mapping[str, str] = {
    "drift check baseline.npz images": "drift",
    "serve --model-repository monitored --drift": "drift",
    "serve --record {postgres}": "postgres",
    "inferences {postgres}": "postgres",
    "evaluate path/to/dataset --name detector": "evaluate",
    "inferences inferences.db --to found.parquet": "parquet",
    "run fixtures/images --model path/to/model --to answers": "parquet",
    "check signed --model-signing-key public.pem": "signatures",
    f"serve --jwks jwks.json --jwt-issuer {ISSUER} --jwt-audience {AUDIENCE}": "jwt",
    "serve --otlp-endpoint {collector}": "otel",
    "export hugging-face --output exported": "torch",
    "check hugging-face": "torch",
    "check intel": "openvino",
    "quantize path/to/model --data images": "quantize",
}
"""The extra that each command needs."""

COMMAND_OF_EXTRA: Mapping[str, str] = {extra: command for command, extra in reversed(EXTRA_OF_COMMAND.items())}
"""The first command above that needs the extra."""

EXTRAS_WITHOUT_COMMAND: Mapping[str, str] = {
    # The extra installs MAITE's protocols for user code; no command needs them.
    "maite": "tests/installed/test_extras.py",
    # `make serve` installs it, and `serve --demo` serves its models if they are there.
    "demo": "tests/installed/test_readme.py",
    # Ray starts its own processes; tests/plugins/ray has an environment with this extra alone.
    "ray": "tests/plugins/ray/driver.py",
    # The registry has torchvision, which timm needs, for CUDA only; its test needs none of the missing operators.
    "timm": "tests/plugins/transformers/torch/test_timm.py",
}
"""Extras that no command needs, and the file that tests each."""

_MAITE = """
from pathlib import Path
from maite.protocols.object_detection import Model
from charioteer import as_maite
assert isinstance(as_maite(Path("path/to/model")), Model)
"""
_SIGN = """
openssl genpkey -algorithm ed25519 -out private.pem && openssl pkey -in private.pem -pubout -out public.pem &&
cp -r path/to/model signed && .venv/bin/charioteer manifest signed &&
openssl pkeyutl -sign -rawin -inkey private.pem -in signed/model.sha256 -out signed/model.sha256.sig
"""


def test_every_user_extra_has_a_test() -> None:
    assert {*EXTRA_OF_COMMAND.values(), *EXTRAS_WITHOUT_COMMAND} == EXTRAS.keys() - DEVELOPER_EXTRAS


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Create a workspace with a store, models with a baseline, in other formats and signed, images, and a key set."""
    folder = tmp_path_factory.mktemp("extras")
    workspace = Workspace(folder, linked_environment())
    store = SqliteStore(folder / "inferences.db")
    store.open()
    store.write([recorded_rows("first", {"camera": "north"}, [{"label": "car", "score": 0.9}])])
    store.close()
    detector = ROOT / "fixtures" / "models" / "detector"
    shutil.copytree(detector, folder / "monitored" / "detector")
    for file in (folder / "baseline.npz", folder / "monitored" / "detector" / "drift-baseline.npz"):
        write_baseline(file, Baseline(sample=sample(40, with_embeddings=False)))
    (folder / "images").mkdir()
    for index in range(50):
        shutil.copy(ROOT / "fixtures" / "images" / "scene.jpg", folder / "images" / f"{index}.jpg")
    tiny_vision.vit(folder / "hugging-face")
    shutil.copytree(detector, folder / "intel")
    (folder / "intel" / "model-settings.json").write_text('{"runtime": "openvino"}')
    key_set_file(folder)
    assert workspace.run(_SIGN).returncode == 0
    return workspace


@pytest.mark.slow
@pytest.mark.parametrize("command", EXTRA_OF_COMMAND)
def test_command_without_its_extra_names_the_missing_extra(workspace: Workspace, command: str) -> None:
    workspace.use(linked_environment())
    line = command.format(postgres="postgresql://127.0.0.1/unused", collector="http://127.0.0.1:1")
    process = workspace.run(f".venv/bin/charioteer {line}")
    assert process.returncode not in (0, -9, 124), process.stdout + process.stderr
    assert "Traceback" not in process.stderr
    last_line = (process.stderr.strip() or process.stdout.strip()).splitlines()[-1]
    assert (
        f"needs the extra {EXTRA_OF_COMMAND[command]}, pip install 'charioteer[{EXTRA_OF_COMMAND[command]}]'"
        in last_line
    )


def test_ray_serve_without_its_extra_names_the_missing_extra(tmp_path: Path) -> None:
    program = "from charioteer import ray_application; ray_application({})"
    process = Workspace(tmp_path, linked_environment()).run(f".venv/bin/python -c '{program}'")
    assert "SettingsError: Ray Serve needs the extra ray, pip install 'charioteer[ray]'" in process.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("extra", "command"), COMMAND_OF_EXTRA.items())
def test_command_works_with_its_extra_alone(
    workspace: Workspace, extra: str, command: str, request: pytest.FixtureRequest
) -> None:
    workspace.use(linked_environment(extra))
    spans: list[tuple[str, bytes]] = []
    with run_otlp_collector(spans) as collector:
        postgres = request.getfixturevalue("postgres").create_database() if "{postgres}" in command else ""
        line = f".venv/bin/charioteer {command.format(postgres=postgres, collector=collector)}"
        if not command.startswith("serve "):
            process = workspace.run(line)
            assert process.returncode == 0, process.stdout + process.stderr
            return
        with workspace.serving(line) as address:
            headers = {"Authorization": f"Bearer {token()}"} if extra == "jwt" else {}
            path = f"{address}/v2/models/m-detector/infer"
            response = httpx.post(path, json=inference_request(0), headers=headers, timeout=60, trust_env=False)
            assert response.status_code == 200, response.text
            if extra == "jwt":
                assert httpx.post(path, json=inference_request(0), timeout=60, trust_env=False).status_code == 401
            if extra == "postgres":
                inferences = httpx.get(f"{address}/inferences", timeout=60, trust_env=False).json()["inferences"]
                assert [inference["model"] for inference in inferences] == ["detector"]
    assert [path for path, _ in spans] == (["/v1/traces"] if extra == "otel" else [])


@pytest.mark.slow
def test_models_implement_maite_protocols(workspace: Workspace) -> None:
    workspace.use(linked_environment("maite"))
    (workspace.folder / "program.py").write_text(_MAITE)
    process = workspace.run(".venv/bin/python program.py")
    assert process.returncode == 0, process.stderr
