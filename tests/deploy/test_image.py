"""Run the steps of the Containerfile without a container engine: the install script, then the server."""

import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.plugins.authoring.pack import archive, members
from tests.deploy.containerfile import PREFIX, command, copied_paths, environment, health_command, only_argument, stages
from tests.deploy.licences import documented_libraries, documented_licences, libraries, unusual_licences
from tests.deploy.locks import installed_versions
from tests.platform.test_journey import MODELS
from tests.support.archives import unpack
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64
from tests.support.servers.server_process import ROOT

pytestmark = pytest.mark.slow

BUILD, IMAGE = stages()
ARBITRARY_UID = 12345
"""A user that is not in /etc/passwd and has no home."""
_AS_ARBITRARY_USER = ("setpriv", f"--reuid={ARBITRARY_UID}", "--regid=0", "--clear-groups", "--no-new-privs")
_SLIM_IMAGE_LIBRARIES = {"libc", "libdl", "libgcc_s", "libm", "libpthread", "librt", "libstdc++", "libz"}
"""Of the packages libc6, libgcc-s1, libstdc++6 and zlib1g: apt needs the first three, Python the last."""
_TIMEOUT_SECONDS = 550


class Installation(NamedTuple):
    """A folder that every user can read, with the image's /opt/charioteer in it."""

    folder: Path
    output: str

    @property
    def prefix(self) -> Path:
        return self.folder / "charioteer"

    def with_prefix(self, arguments: list[str]) -> list[str]:
        return [word.replace(PREFIX, str(self.prefix)) for word in arguments]


@pytest.fixture(scope="module")
def installed() -> Iterator[Installation]:
    """Install what the first stage installs, from the paths that it copies."""
    python = _shared_python()
    with tempfile.TemporaryDirectory(prefix="charioteer-image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for source in copied_paths(BUILD):
            _copy(ROOT / source, folder / "source" / source)
        installation = only_argument(BUILD, "RUN").replace(PREFIX, str(folder / "charioteer"))
        process = subprocess.run(
            installation,
            shell=True,
            cwd=folder / "source",
            env={**os.environ, "PYTHON": python, "EXTRAS": "otel"},
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_SECONDS,
        )
        if process.returncode and "pip" in process.stderr and "No matching distribution" in process.stderr:
            pytest.skip(f"nothing can be installed: {process.stderr.splitlines()[-1]}")
        assert process.returncode == 0, process.stderr
        for source in copied_paths(IMAGE):
            shutil.copy(ROOT / source, folder / "charioteer")
        yield Installation(folder, process.stdout)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def _shared_python() -> str:
    """Return an interpreter that any user can run; that of the tests may be in root's home."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    for candidate in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        python = str(Path(candidate).resolve())
        check = [*_AS_ARBITRARY_USER, python, "-c", "import pip, venv, sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            if subprocess.run(check, capture_output=True, cwd="/").returncode == 0:
                return python
        except FileNotFoundError:
            pytest.skip("there is no setpriv")
    pytest.skip("no Python of at least 3.11 with pip that every user may run")


def test_installed_files_are_writable_by_owner_only(installed: Installation) -> None:
    writable = [
        path
        for path in installed.prefix.rglob("*")
        if not path.is_symlink() and path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ]
    assert writable == []


def test_size_is_printed_and_the_schema_is_installed_but_not_pip(installed: Installation) -> None:
    assert installed.output.split()[1:] == ["MB", "installed"]
    assert 300 < int(installed.output.split()[0]) < 600
    assert not list(installed.prefix.glob("lib/python*/site-packages/pip"))
    schema = json.loads((installed.prefix / "share/charioteer/environment.schema.json").read_text())
    assert {"CHARIOTEER_HTTP_PORT", "MODEL_DIR"} <= set(schema["properties"])


@pytest.fixture(scope="module")
def sbom(installed: Installation) -> dict[str, Any]:
    return json.loads((installed.prefix / "share/charioteer/sbom.cdx.json").read_text())


def test_sbom_lists_the_locked_packages_that_something_imports(sbom: dict[str, Any]) -> None:
    expected = {**installed_versions("base", "otel")}
    for never_imported in ("faker", "hf-xet", "polyfactory"):
        del expected[never_imported]
    assert {package["name"]: package["version"] for package in sbom["components"]} == expected


def test_licences_and_libraries_equal_the_documented_ones(sbom: dict[str, Any]) -> None:
    assert sbom["metadata"]["component"]["licenses"] == [{"expression": "Apache-2.0"}]
    names = {package["name"] for package in sbom["components"]}
    licences = documented_licences()
    assert unusual_licences(sbom["components"]) == {name: licences[name] for name in licences if name in names}
    documented = documented_libraries()
    documented["onnxruntime"].remove("libonnxruntime")  # for programs in C
    assert libraries(sbom["components"]) == documented


def test_native_libraries_need_only_those_of_a_slim_image(installed: Installation) -> None:
    ldd = shutil.which("ldd")
    if ldd is None:
        pytest.skip("there is no ldd")
    library_files = [str(path) for path in installed.prefix.rglob("*.so*") if path.is_file() and not path.is_symlink()]
    ldd_output = subprocess.run([ldd, *library_files], capture_output=True, text=True).stdout
    needed = re.findall(r"^\s+(\S+) => (not found|/(?:usr/)?lib)", ldd_output, re.MULTILINE)
    assert len(library_files) > 50
    assert {name.partition(".so")[0] for name, _ in needed} <= _SLIM_IMAGE_LIBRARIES


def test_server_runs_read_only_offline_and_as_any_user(installed: Installation, tmp_path: Path) -> None:
    models = installed.folder / "models"
    archive_file = tmp_path / "models.tar.gz"
    archive(ROOT / "fixtures/models", members(ROOT / "fixtures/models")[0], archive_file)
    unpack(archive_file, models)
    before = _file_states(installed.folder)

    result = _run_sealed(
        command=installed.with_prefix(command(IMAGE)),
        health_command=installed.with_prefix(health_command(IMAGE)),
        environment={**environment(IMAGE), "CHARIOTEER_INSECURE": "true"},
        uid=ARBITRARY_UID,
        models=str(models),
        requests=[
            ("/ready", None),
            ("/v2/models/m-detector/infer", {"inputs": []}),
            *((f"/v2/models/m-{model}/infer", _image(image)) for model, (_, image) in MODELS.items()),
        ],
    )

    log = "".join(result["log"])
    assert result["sealed"]
    assert result["health"] == 0, log
    ready_response, rejected, *responses = result["answers"]
    assert ready_response[0] == 200, ready_response
    assert rejected[0] == 400
    items = dict(zip(MODELS, map(_items, responses), strict=True))
    assert {item["label"] for item in items["detector"]} >= {"purple star"}
    assert items["vlm"][0]["answer"]
    assert all(items.values())
    assert result["status"] == 0, log
    assert "Traceback" not in log
    assert "telemetry" not in log
    assert _file_states(installed.folder) == before


def _run_sealed(**job: Any) -> dict[str, Any]:
    sandbox = ["unshare", "--mount", "--net", sys.executable, str(ROOT / "tests/deploy/sealed.py")]
    if subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True).returncode:
        pytest.skip("namespaces are not permitted here")
    process = subprocess.run(sandbox, input=json.dumps(job), capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def _file_states(folder: Path) -> dict[str, tuple[int, int]]:
    entries = ((str(path), path.lstat()) for path in folder.rglob("*"))
    return {name: (status.st_size, status.st_mtime_ns) for name, status in entries}


def _image(name: str) -> dict[str, Any]:
    return {"inputs": [image_input(encode_base64((ROOT / "fixtures/images" / name).read_bytes()))]}


def _items(response: tuple[int, str]) -> list[dict[str, Any]]:
    status, body = response
    assert status == 200, body
    return json.loads(body)["outputs"][0]["data"][0]
