"""What is published: both distributions built, the wheel installed where nothing else is, and used there."""

import base64
import os
import re
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from app import __version__
from tests.installed.environments import installed
from tests.support.environments import python_with
from tests.support.server_process import ROOT

PACKAGES = ("app", "metadata", "tasks")
TOP_LEVEL = "app/top_level/"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, the wheel made of that, and in ``direct`` the wheel made of the tree."""
    python, folder = python_with("build"), tmp_path_factory.mktemp("dist")
    build = [str(python), "-m", "build", "--no-isolation", str(ROOT), "--outdir"]
    run([*build, str(folder)])
    run([*build, str(folder / "direct"), "--wheel"])
    return folder


def test_the_wheel_has_every_file_of_the_packages_and_no_other(built: Path) -> None:
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *PACKAGES]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    tracked = {each for each in listed if (ROOT / each).is_file()}
    assert {Path(each).suffix for each in tracked} >= {".py", ".js", ".css", ".html", ".binpb"}
    with zipfile.ZipFile(wheel(built)) as archive:
        names = set(archive.namelist())
    information = f"charioteer-{__version__}.dist-info/"
    expected = {each.removeprefix(TOP_LEVEL) for each in tracked}
    assert {each for each in names if not each.startswith(information)} == expected
    assert "charioteer_pytest.py" in names
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


def test_the_source_distribution_makes_the_same_wheel_as_the_tree(built: Path) -> None:
    contents: list[dict[str, int]] = []
    for path in (wheel(built), wheel(built / "direct")):
        with zipfile.ZipFile(path) as archive:
            contents.append({each.filename: each.CRC for each in archive.infolist()})
    assert contents[0] == contents[1]
    with tarfile.open(built / f"charioteer-{__version__}.tar.gz") as archive:
        names = {each.partition("/")[2] for each in archive.getnames()}
    assert {"README.md", "pyproject.toml", "PKG-INFO", "app/__init__.py"} <= names


def test_the_wheel_alone_serves_a_model(built: Path, tmp_path: Path) -> None:
    """One test, because installing what the wheel asks for takes most of a minute."""
    programs = installed(wheel(built)).folder / "bin"
    assert run([str(programs / "charioteer"), "--version"], tmp_path).strip() == __version__
    without_a_model_a_sentence_says_so(programs, tmp_path)
    a_model_elsewhere_is_served(programs, tmp_path)


def a_model_elsewhere_is_served(programs: Path, tmp_path: Path) -> None:
    model = shutil.copytree(ROOT / "fixtures" / "models" / "detector", tmp_path / "detector")
    picture = base64.b64encode((ROOT / "fixtures" / "images" / "scene.jpg").read_bytes()).decode()
    image = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [picture]}
    with serving(programs, tmp_path, "--model", str(model)) as (process, address):
        answer = httpx.post(f"{address}/v2/models/m-detector/infer", json={"inputs": [image]}, timeout=60)
        assert answer.status_code == 200, answer.text
        labels = [each["label"] for each in answer.json()["outputs"][0]["data"][0]]
        assert labels[:2] == ["yellow circle", "purple star"]
        page = httpx.get(address, headers={"Accept": "text/html"}, timeout=60)
        assert "<html" in page.text
        (script,) = re.findall(r'<script[^>]* src="([^"]+\.js)"', page.text)
        assert httpx.get(page.url.join(script), timeout=60).status_code == 200
        process.terminate()
        assert process.wait(60) == 0


def without_a_model_a_sentence_says_so(programs: Path, tmp_path: Path) -> None:
    command = [str(programs / "charioteer"), "serve", "--port", "0"]
    done = subprocess.run(command, cwd=tmp_path, env=clean(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("charioteer: There are no models: pass one with --model")


@contextmanager
def serving(programs: Path, folder: Path, *arguments: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """The installed server in a folder that knows nothing of this repository, and its address."""
    ports = ["--port", "0", "--grpc-port", "0", "--tensorflow-serving-port", "0"]
    command = [str(programs / "charioteer"), "serve", "--log-format", "json", *ports, *arguments]
    log = folder / "log.txt"
    with log.open("w") as output:
        process = subprocess.Popen(command, cwd=folder, env=clean(), stderr=output, text=True)
        try:
            found = None
            while found is None and process.poll() is None:
                found = re.search(r"Charioteer answers at (http://\S+)", log.read_text())
            assert found, log.read_text()
            yield process, found[1]
        finally:
            process.kill()
            process.wait()


def wheel(folder: Path) -> Path:
    (found,) = folder.glob("*.whl")
    return found


def run(command: Sequence[str], folder: Path = ROOT) -> str:
    """What a command prints; it has to succeed."""
    done = subprocess.run(command, cwd=folder, env=clean(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def clean() -> dict[str, str]:
    """The environment less what would lead Python back into this repository."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
