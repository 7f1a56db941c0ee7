"""Folders that ``charioteer init`` creates: each works without changes."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from charioteer import InProcessModel
from tasks.task import TaskType
from tests.support.command_line import output_of
from tests.support.models.colliding_packages import ENVIRONMENT, make_project
from tests.support.servers.server_process import ROOT

SCAFFOLD = ROOT / "app" / "plugins" / "authoring" / "scaffold"
TASKS = tuple(task_type for task_type in TaskType if (SCAFFOLD / task_type.lower()).is_dir())
IMAGE_TASKS = tuple(task for task in TASKS if task.takes in ("image", "question"))
PHOTO = ROOT / "fixtures" / "images" / "photo.jpg"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for task in TASKS:
        output = output_of("init", task.lower(), "--task", task, cwd=root)
        assert f"charioteer check {task.lower()} --allow-code" in output
    return root


@pytest.mark.slow
@pytest.mark.parametrize("command", [(sys.executable, "-m", "pytest"), (f"{Path(sys.executable).parent}/pytest",)])
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
    output = output_of("check", folder, "--allow-code", "--image", PHOTO)
    assert output.count("Tried on one image") == len(IMAGE_TASKS)
    assert output.count("Not tried") == 1
    for word in (*TASKS, "model:Model", "x FP32 [-1, -1]"):
        assert word in output


def test_init_does_not_overwrite_a_folder(folder: Path) -> None:
    before = (folder / "tensor" / "model.py").read_text()
    output = output_of("init", "tensor", "--task", "OBJECT_DETECTION", cwd=folder, status=1)
    assert "exists and is not empty" in output
    assert (folder / "tensor" / "model.py").read_text() == before


def test_model_name_may_differ_from_the_folder(tmp_path: Path) -> None:
    output_of("init", "boats", "--task", "object_detection", "--directory", tmp_path / "a" / "b")
    settings = json.loads((tmp_path / "a" / "b" / "model-settings.json").read_text())
    assert settings == {"name": "boats", "implementation": "model:Model", "task_type": "OBJECT_DETECTION"}
    assert "# boats" in (tmp_path / "a" / "b" / "README.md").read_text()


@pytest.mark.parametrize("task", ["OBJECT_DETECTION", "IMAGE_SEGMENTATION"])
def test_starter_answers_a_noisy_photograph(task: str) -> None:
    """Comparing all pixels with each of its 60,000 bright regions would take minutes."""
    noise = np.where(np.random.default_rng(0).random((1000, 1000, 1)) < 0.1, 200, 0).astype(np.uint8).repeat(3, axis=2)
    noise[200:400, 100:300] = 255
    model = InProcessModel(SCAFFOLD / task.lower(), allow_code=True)
    (found,) = (msgspec.to_builtins(record) for record in model.ask(noise))
    assert found["label"] == "bright region"


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
    assert message in output_of("init", *arguments, cwd=tmp_path, status=1)
    assert list(tmp_path.iterdir()) == []
