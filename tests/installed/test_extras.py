"""Each extra alone: what needs it works with it, and without it names it in a sentence."""

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from app.recording.address import read_address
from app.recording.postgres_store import PostgresStore
from app.recording.sqlite_store import SqliteStore
from app.recording.store import Store
from tests.app.server.access.issuer import AUDIENCE, ISSUER, key_set_file, token
from tests.installed.environments import DEVELOPER_EXTRAS, EXTRAS, Environment, installed, layered, linked, wheel
from tests.installed.workspace import Workspace, request
from tests.support import tiny_vision
from tests.support.collector import collector
from tests.support.kept import rows
from tests.support.postgres import postgres_server

NEEDING: Mapping[str, str] = {
    "inferences {postgres}": "postgres",
    "serve --record {postgres}": "postgres",
    "evaluate path/to/dataset --name detector": "evaluate",
    "inferences inferences.db --to found.parquet": "parquet",
    "check path/to/model --model-signing-key public.pem": "signatures",
    f"serve --jwks jwks.json --jwt-issuer {ISSUER} --jwt-audience {AUDIENCE}": "jwt",
    "serve --otlp-endpoint {collector}": "otel",
    "check hugging-face": "torch",
    "export hugging-face --output exported": "torch",
}
"""The extra that each command needs."""

OTHERS: Mapping[str, str] = {
    # MAITE's types are structural: the extra brings them, for the programs of users.
    "maite": "tests/installed/test_extras.py",
    # Ray starts processes of its own, for which tests/ray has an environment with this extra alone.
    "ray": "tests/ray/driver.py",
}
"""Extras that no command needs, and the file that tries each."""

_MAITE = """
from pathlib import Path
from maite.protocols.object_detection import Model
from app.assembly.as_maite import as_maite
assert isinstance(as_maite(Path("path/to/model")), Model)
"""
_SIGN = """
openssl genpkey -algorithm ed25519 -out private.pem && openssl pkey -in private.pem -pubout -out public.pem &&
.venv/bin/charioteer manifest path/to/model && openssl pkeyutl -sign -rawin -inkey private.pem \
-in path/to/model/model.sha256 -out path/to/model/model.sha256.sig
"""


def test_each_extra_for_users_is_tried() -> None:
    assert {*NEEDING.values(), *OTHERS} == EXTRAS.keys() - DEVELOPER_EXTRAS


def fill(store: Store) -> None:
    """Make the tables of a store and record one inference."""
    store.open()
    store.write([rows("first", {"camera": "north"}, [{"label": "car", "score": 0.9}])])
    store.close()


@contextmanager
def prepared(
    folder: Path, environment: Environment, command: str
) -> Generator[tuple[Workspace, str, list[tuple[str, bytes]]]]:
    """A workspace with what a command names, the command with addresses filled in, and what the collector gets."""
    workspace = Workspace(folder, environment)
    # The wheel brings no models.
    workspace.environment["MODEL_DIR"] = "fixtures/models"
    spans: list[tuple[str, bytes]] = []
    with ExitStack() as until_the_end:
        addresses: dict[str, str] = {}
        if "{postgres}" in command:
            server = until_the_end.enter_context(postgres_server())
            addresses["postgres"] = server.database()
            if command.startswith("inferences"):
                fill(PostgresStore(read_address(addresses["postgres"])))
        if "{collector}" in command:
            addresses["collector"] = until_the_end.enter_context(collector(spans))
        if "inferences.db" in command:
            fill(SqliteStore(folder / "inferences.db"))
        if "hugging-face" in command:
            tiny_vision.vit(folder / "hugging-face")
        if "--jwks" in command:
            key_set_file(folder)
        if "--model-signing-key" in command:
            assert workspace.run(_SIGN).returncode == 0
        yield workspace, command.format(**addresses), spans


@pytest.mark.slow
@pytest.mark.parametrize("command", NEEDING)
def test_command_without_its_extra_names_it_in_a_sentence(command: str, tmp_path: Path) -> None:
    with prepared(tmp_path, linked(), command) as (workspace, line, _):
        done = workspace.run(f".venv/bin/charioteer {line}")
    assert done.returncode not in (0, -9, 124), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    said = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1]
    assert f"needs the extra {NEEDING[command]}, pip install 'charioteer[{NEEDING[command]}]'" in said


def test_ray_serve_without_its_extra_names_it_in_a_sentence(tmp_path: Path) -> None:
    program = "from app.assembly.ray_serve import application; application({})"
    done = Workspace(tmp_path, linked()).run(f".venv/bin/python -c '{program}'")
    assert "SettingsError: Ray Serve needs the extra ray, pip install 'charioteer[ray]'" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", NEEDING)
def test_command_works_with_its_extra_alone(command: str, tmp_path: Path) -> None:
    with prepared(tmp_path, linked(NEEDING[command]), command) as (workspace, line, spans):
        if line.startswith("serve "):
            with workspace.serving(f".venv/bin/charioteer {line}") as address:
                headers = {"Authorization": f"Bearer {token()}"} if "--jwks" in line else {}
                path = f"{address}/v2/models/m-detector/infer"
                answer = httpx.post(path, json=request(0), headers=headers, timeout=60, trust_env=False)
                assert answer.status_code == 200, answer.text
                if "--jwks" in line:
                    assert httpx.post(path, json=request(0), timeout=60, trust_env=False).status_code == 401
                if "--record" in line:
                    found = httpx.get(f"{address}/inferences", timeout=60, trust_env=False).json()["inferences"]
                    assert [each["model"] for each in found] == ["detector"]
            if "--otlp-endpoint" in line:
                assert [path for path, _ in spans] == ["/v1/traces"]
        else:
            done = workspace.run(f".venv/bin/charioteer {line}")
            assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_models_are_of_the_types_that_the_extra_maite_brings(tmp_path: Path) -> None:
    # This extra stands for all: pip installs it for the wheel, and gets what the linked environments have.
    environment = layered(installed(wheel(tmp_path / "wheel")), "maite")
    assert environment.packages() == linked("maite").packages() - linked().packages()
    workspace = Workspace(tmp_path, environment)
    (tmp_path / "program.py").write_text(_MAITE)
    done = workspace.run(".venv/bin/python program.py")
    assert done.returncode == 0, done.stderr
