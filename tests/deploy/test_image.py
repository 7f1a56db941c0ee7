"""The steps of the Containerfile, taken without a container engine: its install script, and then what it starts."""

import base64
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.cli.pack import archive, members
from tests.deploy.containerfile import PREFIX, command, environment, health_command, only, sources, stages
from tests.deploy.licences import libraries, libraries_documented, other_licences_documented, others
from tests.deploy.locks import here
from tests.support.server_process import ROOT

pytestmark = pytest.mark.slow

BUILD, IMAGE = stages()
SOMEBODY = 12345
"""A user that nothing knows: not in /etc/passwd, without a home."""
_AS_SOMEBODY = ("setpriv", f"--reuid={SOMEBODY}", "--regid=0", "--clear-groups", "--no-new-privs")
_OF_EVERY_DEBIAN = {"libc", "libdl", "libgcc_s", "libm", "libpthread", "librt", "libstdc++", "libz"}
"""Of the packages libc6, libgcc-s1, libstdc++6 and zlib1g: apt needs the first three, Python the last."""
_SECONDS = 550


class Installed(NamedTuple):
    """A folder that everybody may read, with the image's /opt/charioteer in it."""

    folder: Path
    said: str

    @property
    def prefix(self) -> Path:
        return self.folder / "charioteer"

    def here(self, words: list[str]) -> list[str]:
        return [word.replace(PREFIX, str(self.prefix)) for word in words]


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    """What the first stage installs, from what it copies."""
    python = _python_for_everybody()
    with tempfile.TemporaryDirectory(prefix="charioteer-image-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        for source in sources(BUILD):
            _copy(ROOT / source, folder / "source" / source)
        installation = only(BUILD, "RUN").replace(PREFIX, str(folder / "charioteer"))
        done = subprocess.run(
            installation,
            shell=True,
            cwd=folder / "source",
            # Nothing here looks at bytecode, which takes as long to make as all the rest.
            env={**os.environ, "PYTHON": python, "EXTRAS": "otel", "PIP_COMPILE": "0"},
            capture_output=True,
            text=True,
            timeout=_SECONDS,
        )
        if done.returncode and "pip" in done.stderr and "No matching distribution" in done.stderr:
            pytest.skip(f"nothing can be installed: {done.stderr.splitlines()[-1]}")
        assert done.returncode == 0, done.stderr
        for source in sources(IMAGE):
            shutil.copy(ROOT / source, folder / "charioteer")
        yield Installed(folder, done.stdout)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(source, target)


def _python_for_everybody() -> str:
    """An interpreter that any user may run, as that of the base image; the one of the tests may lie in root's home."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    for candidate in (sys.executable, "/usr/bin/python3", "/usr/local/bin/python3"):
        python = str(Path(candidate).resolve())
        check = [*_AS_SOMEBODY, python, "-c", "import pip, venv, sys; sys.exit(sys.version_info < (3, 11))"]
        try:
            if subprocess.run(check, capture_output=True, cwd="/").returncode == 0:
                return python
        except FileNotFoundError:
            pytest.skip("there is no setpriv")
    pytest.skip("no Python of at least 3.11 with pip that every user may run")


def test_only_its_owner_can_write_into_it(installed: Installed) -> None:
    writable = [
        path
        for path in installed.prefix.rglob("*")
        if not path.is_symlink() and path.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    ]
    assert writable == []


def test_its_size_is_said_and_pip_is_not_in_it(installed: Installed) -> None:
    assert installed.said.split()[1:] == ["MB", "installed"]
    assert 100 < int(installed.said.split()[0]) < 1000
    assert not list(installed.prefix.glob("lib/python*/site-packages/pip"))


def test_an_extra_is_installed_when_it_is_asked_for(installed: Installed) -> None:
    assert list(installed.prefix.glob("lib/python*/site-packages/opentelemetry"))


@pytest.fixture(scope="module")
def bill(installed: Installed) -> dict[str, Any]:
    return json.loads((installed.prefix / "share/charioteer/sbom.cdx.json").read_text())


def test_it_holds_what_is_locked_and_says_so(bill: dict[str, Any]) -> None:
    assert {each["name"]: each["version"] for each in bill["components"]} == here("base", "otel")


def test_its_licences_and_libraries_are_those_of_the_document(bill: dict[str, Any]) -> None:
    assert bill["metadata"]["component"]["licenses"] == [{"expression": "Apache-2.0"}]
    names = {each["name"] for each in bill["components"]}
    licences = other_licences_documented()
    assert others(bill["components"]) == {name: licences[name] for name in licences if name in names}
    assert libraries(bill["components"]) == libraries_documented()


def test_it_needs_no_library_that_a_slim_image_lacks(installed: Installed) -> None:
    ldd = shutil.which("ldd")
    if ldd is None:
        pytest.skip("there is no ldd")
    libraries = [str(path) for path in installed.prefix.rglob("*.so*") if path.is_file() and not path.is_symlink()]
    said = subprocess.run([ldd, *libraries], capture_output=True, text=True).stdout
    needed = re.findall(r"^\s+(\S+) => (not found|/(?:usr/)?lib)", said, re.MULTILINE)
    assert len(libraries) > 50
    assert {name.partition(".so")[0] for name, _ in needed} <= _OF_EVERY_DEBIAN


def test_it_brings_its_environment_schema(installed: Installed) -> None:
    schema = json.loads((installed.prefix / "share/charioteer/environment.schema.json").read_text())
    assert {"CHARIOTEER_HTTP_PORT", "MODEL_DIR"} <= set(schema["properties"])


def test_it_serves_sealed_and_offline_as_anybody(installed: Installed, tmp_path: Path) -> None:
    models = installed.folder / "models"
    packed = tmp_path / "models.tar.gz"
    archive(ROOT / "fixtures/models", members(ROOT / "fixtures/models")[0], packed)
    with tarfile.open(packed) as tar:
        tar.extractall(models, filter="data")
    before = _listing(installed.folder)

    result = _sealed(
        command=installed.here(command(IMAGE)),
        health_command=installed.here(health_command(IMAGE)),
        environment={**environment(IMAGE), "CHARIOTEER_INSECURE": "true"},
        uid=SOMEBODY,
        models=str(models),
        requests=[
            ("/ready", None),
            ("/v2/models/m-detector/infer", _image("scene.jpg", {})),
            ("/v2/models/m-vlm/infer", _image("shape.jpg", {"prompts": ["what shape is it?"]})),
            ("/v2/models/m-detector/infer", {"inputs": []}),
        ],
    )

    log = "".join(result["log"])
    assert result["sealed"]
    assert result["health"] == 0, log
    ready, detected, answered, refused = result["answers"]
    assert ready[0] == 200, ready
    assert {each["label"] for each in _items(detected)} >= {"purple star"}
    assert _items(answered)[0]["answer"]
    assert refused[0] == 400
    assert result["status"] == 0, log
    assert "Traceback" not in log
    assert "telemetry" not in log
    assert _listing(installed.folder) == before


def _sealed(**job: Any) -> dict[str, Any]:
    sealing = ["unshare", "--mount", "--net", sys.executable, str(ROOT / "tests/deploy/sealed.py")]
    if subprocess.run(["unshare", "--mount", "--net", "true"], capture_output=True).returncode:
        pytest.skip("namespaces are not permitted here")
    done = subprocess.run(sealing, input=json.dumps(job), capture_output=True, text=True, timeout=_SECONDS)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _listing(folder: Path) -> dict[str, tuple[int, int]]:
    found = ((str(path), path.lstat()) for path in folder.rglob("*"))
    return {name: (status.st_size, status.st_mtime_ns) for name, status in found}


def _image(name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    picture = base64.b64encode((ROOT / "fixtures/images" / name).read_bytes()).decode()
    return {
        "inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [picture], "parameters": parameters}]
    }


def _items(answer: tuple[int, str]) -> list[dict[str, Any]]:
    status, body = answer
    assert status == 200, body
    return json.loads(body)["outputs"][0]["data"][0]
