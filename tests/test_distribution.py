"""Published distributions: both are built, and the wheel is installed and used without the repository."""

import os
import re
import subprocess
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement

from app import __version__
from tests.installed.environments import EXTRAS, requirements, wheel_environment
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64
from tests.support.servers.client_environments import python_with
from tests.support.servers.server_process import ROOT, run_server

PACKAGES = ("app", "metadata", "tasks")
DEMO = ("fixtures/images", "fixtures/models", "tests/plugins/acme/package/acme")
MOVED = {
    "app/public_api/charioteer/": "charioteer/",
    "fixtures/": "app/demo/",
    "tests/plugins/acme/package/acme/": "app/demo/acme/",
}
GUIDE = "app/guide/"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source distribution, and the wheel made of it; `deploy/install.sh` makes a wheel of the tree."""
    python, folder = python_with("build"), tmp_path_factory.mktemp("dist")
    run([str(python), "-m", "build", "--no-isolation", str(ROOT), "--outdir", str(folder)])
    return folder


def test_the_wheel_has_every_file_of_the_packages_and_no_other(built: Path) -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PACKAGES, *DEMO]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    tracked = {name for name in listed if (ROOT / name).is_file()}
    assert {Path(name).suffix for name in tracked} >= {".py", ".js", ".css", ".html", ".binpb"}
    with zipfile.ZipFile(wheel(built)) as archive:
        names = set(archive.namelist())
    information = f"charioteer-{__version__}.dist-info/"
    expected = {re.sub("|".join(MOVED), lambda match: MOVED[match[0]], name, count=1) for name in tracked}
    assert {name for name in names if not name.startswith((information, GUIDE))} == expected
    guide = {name for name in names if name.startswith(GUIDE)}
    assert guide >= {f"{GUIDE}{page.stem}.html" for page in (ROOT / "docs").glob("*.md")}
    assert guide >= {f"{GUIDE}SKILL.md", f"{GUIDE}llms.txt"}
    assert wheel(built).stat().st_size < 12_500_000
    assert f"{information}entry_points.txt" in names


def test_both_distributions_have_the_licence(built: Path) -> None:
    licence = (ROOT / "LICENSE").read_bytes()
    with zipfile.ZipFile(wheel(built)) as archive:
        information = f"charioteer-{__version__}.dist-info/"
        assert archive.read(f"{information}licenses/LICENSE") == licence
        metadata = archive.read(f"{information}METADATA").decode()
    assert "\nLicense-Expression: Apache-2.0\nLicense-File: LICENSE\n" in metadata
    assert "\nAuthor: The Charioteer authors\n" in metadata
    with tarfile.open(built / f"charioteer-{__version__}.tar.gz") as archive:
        packed = archive.extractfile(f"charioteer-{__version__}/LICENSE")
        assert packed is not None
        assert packed.read() == licence
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"README.md", "pyproject.toml", "PKG-INFO", "app/__init__.py"} <= names


def test_the_wheel_requires_the_packages_of_the_project(built: Path) -> None:
    with zipfile.ZipFile(wheel(built)) as archive:
        metadata = archive.read(f"charioteer-{__version__}.dist-info/METADATA").decode()
    declared = [Requirement(text) for text in re.findall(r"^Requires-Dist: (.+)$", metadata, re.MULTILINE)]
    base = {requirement for requirement in declared if "extra" not in str(requirement.marker)}
    assert base == {Requirement(text) for text in requirements()}
    assert set(re.findall(r"^Provides-Extra: (.+)$", metadata, re.MULTILINE)) == EXTRAS.keys()


def test_the_wheel_alone_serves_a_model(built: Path, tmp_path: Path) -> None:
    programs = wheel_environment(wheel(built)).folder / "bin"
    assert run([str(programs / "charioteer"), "--version"], tmp_path).strip() == __version__
    command = [str(programs / "charioteer"), "serve", "--port", "0"]
    completed = subprocess.run(command, cwd=tmp_path, env=clean(), capture_output=True, text=True, timeout=60)
    assert completed.returncode == 1
    assert "Traceback" not in completed.stderr
    assert "There are no models: pass one with --model" in completed.stderr
    scene = (ROOT / "fixtures" / "images" / "scene.jpg").read_bytes()
    body = {"inputs": [image_input(encode_base64(scene))]}
    program = [str(programs / "charioteer")]
    with run_server("--demo", environment=clean(), cwd=tmp_path, program=program) as server:
        address = server.address
        answer = httpx.post(f"{address}/v2/models/m-detector/infer", json=body, timeout=60)
        assert answer.status_code == 200, answer.text
        labels = [record["label"] for record in answer.json()["outputs"][0]["data"][0]]
        assert labels[:2] == ["yellow circle", "purple star"]
        page = httpx.get(address, headers={"Accept": "text/html"}, timeout=60)
        assert "<html" in page.text
        (script,) = re.findall(r'<script[^>]* src="([^"]+\.js)"', page.text)
        assert httpx.get(page.url.join(script), timeout=60).status_code == 200
        assert "<h1" in httpx.get(f"{address}/guide/index.html", timeout=60).text
        sample = httpx.get(f"{address}/page/samples/scene.jpg", timeout=60)
        assert sample.content == scene
        assert server.stop() == 0


def wheel(folder: Path) -> Path:
    (path,) = folder.glob("*.whl")
    return path


def run(command: Sequence[str], folder: Path = ROOT) -> str:
    """Run a command that must succeed and return its output."""
    completed = subprocess.run(command, cwd=folder, env=clean(), capture_output=True, text=True, timeout=600)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


def clean() -> dict[str, str]:
    """Return the environment without variables that lead Python back into this repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
