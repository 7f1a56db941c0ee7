"""Folders that ``charioteer init`` creates: each works without changes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tasks.task import TaskType
from tests.support.colliding_packages import ENVIRONMENT, make_project
from tests.support.images import encode_base64
from tests.support.server_process import ROOT, run_server

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
IMAGE_TASKS = TASKS[:5]
TEXT_TASKS = TASKS[5:8]
PHOTO = ROOT / "fixtures" / "images" / "photo.jpg"

pytestmark = pytest.mark.slow


def charioteer(*arguments: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a command."""
    command = [sys.executable, "-m", "app.__main__", *map(str, arguments)]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, env=environment)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder for every task."""
    root = tmp_path_factory.mktemp("models")
    for task in TASKS:
        completed = charioteer("init", task.lower(), "--task", task, cwd=root)
        assert completed.returncode == 0, completed.stderr
        assert f"charioteer check {task.lower()} --allow-code" in completed.stdout
    return root


def test_init_covers_every_task_type() -> None:
    assert set(TASKS) == set(TaskType)


@pytest.mark.parametrize(
    "command", [(sys.executable, "-m", "pytest"), (str(Path(sys.executable).with_name("pytest")),)]
)
def test_generated_tests_pass_beside_packages_of_the_same_names(
    folder: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    project = make_project(tmp_path / "project")
    shutil.copytree(folder, project / "models")
    options = ["-q", "-p", "no:cacheprovider"]
    completed = subprocess.run([*command, *options], cwd=project, capture_output=True, text=True, env=ENVIRONMENT)
    assert completed.returncode == 0, completed.stdout
    assert f"{len(TASKS) + 1} passed" in completed.stdout


def test_check_runs_every_generated_model(folder: Path) -> None:
    completed = charioteer("check", folder, "--allow-code", "--image", PHOTO)
    assert completed.returncode == 0, completed.stdout
    assert completed.stdout.count("Tried on one image") == len(IMAGE_TASKS)
    assert completed.stdout.count("Tried on one text") == len(TEXT_TASKS)
    assert completed.stdout.count("Not tried") == 1
    for word in (*TASKS, "model:Model", "predict(image, prompt), streamed", "x FP32 [-1, -1]"):
        assert word in completed.stdout


def test_check_runs_no_code_without_allow_code(folder: Path) -> None:
    completed = charioteer("check", folder / "tensor")
    assert completed.returncode == 1
    assert "not allowed here" in " ".join(completed.stdout.split())


def test_generated_models_are_served(folder: Path) -> None:
    photo = encode_base64(PHOTO.read_bytes())
    with run_server("--model-repository", str(folder), "--allow-code") as server:
        for task in (*IMAGE_TASKS, *TEXT_TASKS):
            content = photo if task in IMAGE_TASKS else "On a good day in May, 3 ships left Dover."
            body = {"inputs": [{"name": "args", "shape": [1], "datatype": "BYTES", "data": [content]}]}
            answer = httpx.post(f"{server.address}/v2/models/m-{task.lower()}/infer", json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            (output,) = answer.json()["outputs"]
            assert output["data"][0], (task, output)
        body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 3]}]}
        answer = httpx.post(f"{server.address}/v2/models/tensor/infer", json=body, timeout=60)
        assert answer.json()["outputs"][0]["data"] == [-1, 1]
        stream_body = {"text_input": "which colour?", "image": photo}
        answer = httpx.post(
            f"{server.address}/v2/models/image_text_to_text/generate_stream", json=stream_body, timeout=60
        )
        assert answer.text.count("text_output") >= 2, answer.text
        assert server.stop() == 0


def test_init_does_not_overwrite_a_folder(folder: Path) -> None:
    before = (folder / "tensor" / "model.py").read_text()
    completed = charioteer("init", "tensor", "--task", "OBJECT_DETECTION", cwd=folder)
    assert completed.returncode == 1
    assert "exists and is not empty" in completed.stderr
    assert (folder / "tensor" / "model.py").read_text() == before


def test_model_name_may_differ_from_the_folder(tmp_path: Path) -> None:
    completed = charioteer("init", "boats", "--task", "object_detection", "--directory", tmp_path / "a" / "b")
    assert completed.returncode == 0, completed.stderr
    settings = json.loads((tmp_path / "a" / "b" / "model-settings.json").read_text())
    assert settings == {"name": "boats", "implementation": "model:Model", "task_type": "OBJECT_DETECTION"}
    assert "# boats" in (tmp_path / "a" / "b" / "README.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("boats", "--task", "BOATS"), "Expected one of IMAGE_CLASSIFICATION"),
        (("../boats", "--task", "TENSOR"), "Expected a name of letters"),
        (("b/c", "--task", "TENSOR"), "Expected a name of letters"),
        (("boats", "--task", "../scaffold"), "Expected one of"),
        (("boats", "--task", "TENSOR", "--directory", "/dev/null"), "exists and is not empty"),
    ],
)
def test_init_rejects_invalid_arguments(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    completed = charioteer("init", *arguments, cwd=tmp_path)
    assert completed.returncode == 1
    assert message in completed.stderr
    assert list(tmp_path.iterdir()) == []
