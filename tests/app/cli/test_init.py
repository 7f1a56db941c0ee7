"""Folders that ``charioteer init`` creates: each works without changes."""

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import msgspec
import numpy as np
import pytest

from app.runtimes.python.task_adapters import TASK_ADAPTERS
from charioteer import InProcessModel
from tasks.task import TaskType
from tests.app.runtimes.onnxruntime import graphs
from tests.support.command_line import charioteer
from tests.support.data.images import encode_base64
from tests.support.models.colliding_packages import ENVIRONMENT, make_project
from tests.support.servers.server_process import ROOT, run_server

SCAFFOLD = ROOT / "app" / "cli" / "model" / "scaffold"
TASKS = tuple(task_type for task_type in TaskType if (SCAFFOLD / task_type.lower()).is_dir())
IMAGE_TASKS = tuple(task for task in TASKS if task.takes in ("image", "question"))
TEXT_TASKS = tuple(task for task in TASKS if task.takes == "text")
PHOTO = ROOT / "fixtures" / "images" / "photo.jpg"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder for every task."""
    root = tmp_path_factory.mktemp("models")
    for task in TASKS:
        completed = charioteer("init", task.lower(), "--task", task, cwd=root)
        assert completed.returncode == 0, completed.stderr
        assert f"charioteer check {task.lower()} --allow-code" in completed.stdout
    return root


def test_every_adapter_has_a_starter_model() -> None:
    assert set(TASKS) == {*TASK_ADAPTERS, TaskType.TENSOR}


@pytest.mark.slow
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


@pytest.mark.slow
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


def from_sklearn(folder: Path) -> Path:
    """Train a classifier by colour, and save it as scikit-learn's users do."""
    joblib, linear_model = importlib.import_module("joblib"), importlib.import_module("sklearn.linear_model")
    random = np.random.default_rng(0)
    colours = np.repeat(random.uniform(0, 1, (60, 1, 3)), 32 * 32, axis=1).reshape(60, -1)
    names = np.array(["red", "green", "blue"])[colours[:, :3].argmax(axis=1)]
    joblib.dump(linear_model.LogisticRegression().fit(colours, names), folder / "colour.joblib")
    return folder / "colour.joblib"


def from_onnx(folder: Path) -> Path:
    (folder / "labels.txt").write_text("red\ngreen\nblue\n")
    return graphs.channel_means(folder / "graph.onnx", shape=("batch", 3, 24, 24))


def from_torchscript(folder: Path) -> Path:
    torch = importlib.import_module("torch")
    (folder / "labels.txt").write_text("red\ngreen\nblue\n")
    pool = torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten())
    torch.jit.save(torch.jit.trace(pool.eval(), torch.zeros(1, 3, 24, 24)), folder / "net.ts")
    return folder / "net.ts"


@pytest.mark.parametrize(
    ("kind", "write", "options"),
    [
        ("sklearn", from_sklearn, ()),
        ("onnx", from_onnx, ("--size", "24")),
        pytest.param(
            "torchscript",
            from_torchscript,
            ("--size", "24"),
            marks=[pytest.mark.slow, pytest.mark.filterwarnings("ignore")],
        ),
    ],
)
def test_recipe_answers_with_model_of_framework(
    tmp_path: Path, kind: str, write: Callable[[Path], Path], options: tuple[str, ...]
) -> None:
    (tmp_path / "given").mkdir()
    file = write(tmp_path / "given")
    folder = tmp_path / "colours"
    completed = charioteer("init", "colours", "--from", kind, "--file", file, *options, cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [path.name for path in (tmp_path / "given").iterdir()]
        + ["README.md", "model-settings.json", "model.py", "test_colours.py"]
    )
    image = np.full((48, 64, 3), (200, 30, 20), np.uint8)
    records = msgspec.to_builtins(InProcessModel(folder, allow_code=True).ask(image))
    assert [records[0]["label"], len(records)] == ["red", 3]


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("TorchScript", "torchscript"),
        ("torch.export", "torch-export"),
        ("TFLite", "tflite"),
        ("scikit-learn", "sklearn"),
        ("Other outputs", "onnx"),
    ],
)
def test_recipe_is_that_of_documentation(tmp_path: Path, heading: str, kind: str) -> None:
    page = (ROOT / "docs" / "python_models.md").read_text()
    section = page.split(f"### {heading}\n", 1)[1]
    code = section.split("```python\n", 1)[1].split("```", 1)[0]
    assert (SCAFFOLD / "recipes" / f"{kind}.py.txt").read_text() == code


def test_recipe_without_file_says_what_to_add(tmp_path: Path) -> None:
    completed = charioteer("init", "flowers", "--from", "tflite", cwd=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert "Copy the model file there" in completed.stdout
    assert 'declare "labels"' in completed.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("boats",), "Expected one of --task"),
        (("boats", "--task", "TENSOR", "--from", "onnx"), "Expected one of --task"),
        (("boats", "--task", "TENSOR", "--size", "3"), "--file and --size need --from"),
        (("boats", "--from", "caffe"), "--from: Expected one of onnx, sklearn, tflite, torch-export, torchscript"),
        (("boats", "--from", "tflite", "--size", "3"), "declares its own size"),
        (("init", "--from", "onnx", "--file", __file__), "--file: test_init.py is the name of a file that init writes"),
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
