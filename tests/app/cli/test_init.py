"""Folders to begin with: each works as it is written."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tasks.task import TaskType
from tests.support.own_packages import ENVIRONMENT, make_project
from tests.support.pictures import base64_text
from tests.support.server_process import ROOT, serving

TASKS = (
    "IMAGE_CLASSIFICATION",
    "OBJECT_DETECTION",
    "ORIENTED_OBJECT_DETECTION",
    "IMAGE_SEGMENTATION",
    "IMAGE_TEXT_TO_TEXT",
    "TEXT_CLASSIFICATION",
    "TOKEN_CLASSIFICATION",
    "TEXT_GENERATION",
    "TENSOR",
)
OF_IMAGES = TASKS[:5]
OF_TEXTS = TASKS[5:8]
PHOTO = ROOT / "fixtures" / "images" / "photo.jpg"

pytestmark = pytest.mark.slow


def charioteer(*arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    command = [sys.executable, "-m", "app.__main__", *map(str, arguments)]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, env=environment)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of every kind."""
    made = tmp_path_factory.mktemp("models")
    for task in TASKS:
        done = charioteer("init", task.lower(), "--task", task, cwd=made)
        assert done.returncode == 0, done.stderr
        assert f"charioteer check {task.lower()} --allow-code" in done.stdout
    return made


def test_there_is_one_for_every_task() -> None:
    assert set(TASKS) == set(TaskType)


@pytest.mark.parametrize(
    "command", [(sys.executable, "-m", "pytest"), (str(Path(sys.executable).with_name("pytest")),)]
)
def test_the_tests_that_come_with_them_pass_beside_packages_of_our_names(
    folder: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    project = make_project(tmp_path / "project")
    shutil.copytree(folder, project / "models")
    options = ["-q", "-p", "no:cacheprovider"]
    done = subprocess.run([*command, *options], cwd=project, capture_output=True, text=True, env=ENVIRONMENT)
    assert done.returncode == 0, done.stdout
    assert f"{len(TASKS) + 1} passed" in done.stdout


def test_check_understands_and_tries_them(folder: Path) -> None:
    done = charioteer("check", folder, "--allow-code", "--image", PHOTO)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("Tried on one image") == len(OF_IMAGES)
    assert done.stdout.count("Tried on one text") == len(OF_TEXTS)
    assert done.stdout.count("Not tried") == 1
    for word in (*TASKS, "model:Model", "predict(image, prompt), streamed", "x FP32 [-1, -1]"):
        assert word in done.stdout


def test_check_without_leave_runs_no_code(folder: Path) -> None:
    done = charioteer("check", folder / "tensor")
    assert done.returncode == 1
    assert "not allowed here" in " ".join(done.stdout.split())


def test_they_are_served_and_answer_about_a_photograph(folder: Path) -> None:
    photo = base64_text(PHOTO.read_bytes())
    with serving("--model-repository", str(folder), "--allow-code") as server:
        for task in (*OF_IMAGES, *OF_TEXTS):
            datum = photo if task in OF_IMAGES else "On a good day in May, 3 ships left Dover."
            body = {"inputs": [{"name": "args", "shape": [1], "datatype": "BYTES", "data": [datum]}]}
            answer = httpx.post(f"{server.address}/v2/models/m-{task.lower()}/infer", json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            (output,) = answer.json()["outputs"]
            assert output["data"][0], (task, output)
        body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 3]}]}
        answer = httpx.post(f"{server.address}/v2/models/tensor/infer", json=body, timeout=60)
        assert answer.json()["outputs"][0]["data"] == [-1, 1]
        streamed = {"text_input": "which colour?", "image": photo}
        answer = httpx.post(f"{server.address}/v2/models/image_text_to_text/generate_stream", json=streamed, timeout=60)
        assert answer.text.count("text_output") >= 2, answer.text
        assert server.stop() == 0


def test_what_is_there_is_left_alone(folder: Path) -> None:
    before = (folder / "tensor" / "model.py").read_text()
    done = charioteer("init", "tensor", "--task", "OBJECT_DETECTION", cwd=folder)
    assert done.returncode == 1
    assert "exists and is not empty" in done.stderr
    assert (folder / "tensor" / "model.py").read_text() == before


def test_the_name_may_differ_from_the_folder(tmp_path: Path) -> None:
    done = charioteer("init", "boats", "--task", "object_detection", "--directory", tmp_path / "a" / "b")
    assert done.returncode == 0, done.stderr
    settings = json.loads((tmp_path / "a" / "b" / "model-settings.json").read_text())
    assert settings == {"name": "boats", "implementation": "model:Model", "task_type": "OBJECT_DETECTION"}
    assert "# boats" in (tmp_path / "a" / "b" / "README.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("boats", "--task", "BOATS"), "Expected one of IMAGE_CLASSIFICATION"),
        (("../boats", "--task", "TENSOR"), "Expected a name of letters"),
        (("b/c", "--task", "TENSOR"), "Expected a name of letters"),
        (("boats", "--task", "../scaffold"), "Expected one of"),
        (("boats", "--task", "TENSOR", "--directory", "/dev/null"), "exists and is not empty"),
    ],
)
def test_what_cannot_be_made_is_said(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    done = charioteer("init", *arguments, cwd=tmp_path)
    assert done.returncode == 1
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []
