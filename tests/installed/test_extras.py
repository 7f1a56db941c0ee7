"""Check each extra alone: its commands work with it, and name it when it is missing."""

import shutil
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from app.plugins.drift.baseline import Baseline, write_baseline
from app.plugins.recording.stores.postgres_store import PostgresStore
from app.plugins.recording.stores.sqlite_store import SqliteStore
from app.plugins.recording.stores.store import Store, parse_dsn
from tests.installed.environments import (
    DEVELOPER_EXTRAS,
    EXTRAS,
    Environment,
    environment_with_extra,
    linked_environment,
)
from tests.installed.workspace import Workspace, request
from tests.plugins.jwt.issuer import AUDIENCE, ISSUER, key_set_file, token
from tests.support.data.drift_samples import sample
from tests.support.data.recorded_rows import recorded_rows
from tests.support.models import tiny_vision
from tests.support.servers.collector import run_otlp_collector
from tests.support.servers.postgres import run_postgres
from tests.support.servers.server_process import ROOT

EXTRA_OF_COMMAND: Mapping[str, str] = {
    "drift check baseline.npz images": "drift",
    "serve --model-repository monitored --drift": "drift",
    "serve --record {postgres}": "postgres",
    "inferences {postgres}": "postgres",
    "evaluate path/to/dataset --name detector": "evaluate",
    "inferences inferences.db --to found.parquet": "parquet",
    "run fixtures/images --model path/to/model --to answers": "parquet",
    "check path/to/model --model-signing-key public.pem": "signatures",
    f"serve --jwks jwks.json --jwt-issuer {ISSUER} --jwt-audience {AUDIENCE}": "jwt",
    "serve --otlp-endpoint {collector}": "otel",
    "export hugging-face --output exported": "torch",
    "check hugging-face": "torch",
    "check intel": "openvino",
    "quantize path/to/model --data fixtures/images": "quantize",
}
"""The extra that each command needs."""

COMMAND_OF_EXTRA: Mapping[str, str] = {extra: command for command, extra in reversed(EXTRA_OF_COMMAND.items())}
"""The first command above that needs the extra."""

EXTRAS_WITHOUT_COMMAND: Mapping[str, str] = {
    # The extra installs MAITE's protocols for user code; no command needs them.
    "maite": "tests/installed/test_extras.py",
    # It needs a server of CVAT, which no package has; a test calls the function as its command does.
    "cvat": "tests/clients/with_cvat.py",
    # `make serve` installs it, and `serve --demo` serves its models if they are there.
    "demo": "tests/installed/test_readme.py",
    # Ray starts its own processes; tests/plugins/ray has an environment with this extra alone.
    "ray": "tests/plugins/ray/driver.py",
    # The registry has torchvision, which timm needs, for CUDA only; its test needs none of the missing operators.
    "timm": "tests/plugins/torch/test_timm.py",
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
.venv/bin/charioteer manifest path/to/model && openssl pkeyutl -sign -rawin -inkey private.pem \
-in path/to/model/model.sha256 -out path/to/model/model.sha256.sig
"""


def test_every_user_extra_has_a_test() -> None:
    assert {*EXTRA_OF_COMMAND.values(), *EXTRAS_WITHOUT_COMMAND} == EXTRAS.keys() - DEVELOPER_EXTRAS


def fill_store(store: Store) -> None:
    """Make the tables of a store and record one inference."""
    store.open()
    store.write([recorded_rows("first", {"camera": "north"}, [{"label": "car", "score": 0.9}])])
    store.close()


def copy_monitored_model(folder: Path) -> None:
    """Make a repository of one model with a baseline, and images to check against the baseline."""
    shutil.copytree(ROOT / "fixtures" / "models" / "detector", folder / "monitored" / "detector")
    for file in (folder / "baseline.npz", folder / "monitored" / "detector" / "drift-baseline.npz"):
        write_baseline(file, Baseline(sample=sample(40, with_embeddings=False)))
    (folder / "images").mkdir()
    for index in range(30):
        shutil.copy(ROOT / "fixtures" / "images" / "scene.jpg", folder / "images" / f"{index}.jpg")


@contextmanager
def prepare_command(
    folder: Path, environment: Environment, command: str
) -> Generator[tuple[Workspace, str, list[tuple[str, bytes]]]]:
    """Yield a workspace with the files that a command needs, the complete command, and the collector's requests."""
    workspace = Workspace(folder, environment)
    spans: list[tuple[str, bytes]] = []
    with ExitStack() as stack:
        addresses: dict[str, str] = {}
        if "{postgres}" in command and "asyncpg" not in environment.packages():
            addresses["postgres"] = "postgresql://127.0.0.1/unused"
        elif "{postgres}" in command:
            server = stack.enter_context(run_postgres())
            addresses["postgres"] = server.create_database()
            if command.startswith("inferences"):
                fill_store(PostgresStore(parse_dsn(addresses["postgres"])))
        if "{collector}" in command:
            addresses["collector"] = stack.enter_context(run_otlp_collector(spans))
        if "inferences.db" in command:
            fill_store(SqliteStore(folder / "inferences.db"))
        if "drift" in command:
            copy_monitored_model(folder)
        if "hugging-face" in command:
            tiny_vision.vit(folder / "hugging-face")
        if "intel" in command:
            intel = shutil.copytree(ROOT / "fixtures" / "models" / "detector", folder / "intel")
            (intel / "model-settings.json").write_text('{"runtime": "openvino"}')
        if "--jwks" in command:
            key_set_file(folder)
        if "--model-signing-key" in command:
            assert workspace.run(_SIGN).returncode == 0
        yield workspace, command.format(**addresses), spans


@pytest.mark.slow
@pytest.mark.parametrize("command", EXTRA_OF_COMMAND)
def test_command_without_its_extra_names_the_missing_extra(command: str, tmp_path: Path) -> None:
    with prepare_command(tmp_path, linked_environment(), command) as (workspace, line, _):
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
def test_command_works_with_its_extra_alone(extra: str, command: str, tmp_path: Path) -> None:
    with prepare_command(tmp_path, linked_environment(extra), command) as (workspace, line, spans):
        if line.startswith("serve "):
            with workspace.serving(f".venv/bin/charioteer {line}") as address:
                headers = {"Authorization": f"Bearer {token()}"} if "--jwks" in line else {}
                path = f"{address}/v2/models/m-detector/infer"
                response = httpx.post(path, json=request(0), headers=headers, timeout=60, trust_env=False)
                assert response.status_code == 200, response.text
                if "--jwks" in line:
                    assert httpx.post(path, json=request(0), timeout=60, trust_env=False).status_code == 401
                if "--record" in line:
                    inferences = httpx.get(f"{address}/inferences", timeout=60, trust_env=False).json()["inferences"]
                    assert [inference["model"] for inference in inferences] == ["detector"]
            if "--otlp-endpoint" in line:
                assert [path for path, _ in spans] == ["/v1/traces"]
        else:
            process = workspace.run(f".venv/bin/charioteer {line}")
            assert process.returncode == 0, process.stdout + process.stderr


@pytest.mark.slow
def test_models_implement_maite_protocols(tmp_path: Path) -> None:
    # pip installs this one extra, and must install what the linked environments have.
    environment = environment_with_extra(linked_environment(), "maite")
    assert environment.packages() == linked_environment("maite").packages() - linked_environment().packages()
    workspace = Workspace(tmp_path, environment)
    (tmp_path / "program.py").write_text(_MAITE)
    process = workspace.run(".venv/bin/python program.py")
    assert process.returncode == 0, process.stderr
