"""Folders that ``charioteer init`` creates: each works without changes."""

import importlib
import itertools
import json
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
import pytest

from charioteer import InProcessModel
from tasks.task import TaskType
from tests.core.runtimes.onnxruntime import graphs
from tests.support.command_line import output_of
from tests.support.data.images import encode_base64
from tests.support.models.colliding_packages import ENVIRONMENT, make_project
from tests.support.servers.server_process import ROOT, run_server

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


def test_check_runs_no_code_without_allow_code(folder: Path) -> None:
    assert "not allowed here" in " ".join(output_of("check", folder / "tensor", status=1).split())


@pytest.mark.slow
def test_generated_models_are_served(folder: Path) -> None:
    photo = encode_base64(PHOTO.read_bytes())
    with run_server("--model-repository", str(folder), "--allow-code") as server:
        for task in IMAGE_TASKS:
            body = {"inputs": [{"name": "args", "shape": [1], "datatype": "BYTES", "data": [photo]}]}
            answer = httpx.post(f"{server.address}/v2/models/m-{task.lower()}/infer", json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            (output,) = answer.json()["outputs"]
            assert output["data"][0], (task, output)
        body = {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 3]}]}
        answer = httpx.post(f"{server.address}/v2/models/tensor/infer", json=body, timeout=60)
        assert answer.json()["outputs"][0]["data"] == [-1, 1]
        assert server.stop() == 0


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


SLOW_TORCH = (pytest.mark.slow, pytest.mark.filterwarnings("ignore"))


@pytest.mark.parametrize(
    ("kind", "write", "options"),
    [
        ("sklearn", from_sklearn, ()),
        ("onnx", from_onnx, ("--size", "24")),
        pytest.param("torchscript", from_torchscript, ("--size", "24"), marks=SLOW_TORCH),
    ],
)
def test_recipe_answers_with_model_of_framework(
    tmp_path: Path, kind: str, write: Callable[[Path], Path], options: tuple[str, ...]
) -> None:
    (tmp_path / "given").mkdir()
    file = write(tmp_path / "given")
    folder = tmp_path / "colours"
    output_of("init", "colours", "--from", kind, "--file", file, *options, cwd=tmp_path)
    written = {"README.md", "model-settings.json", "model.py", "test_colours.py"}
    given = {path.name for path in (tmp_path / "given").iterdir()}
    assert {path.name for path in folder.iterdir()} == given | written
    image = np.full((48, 64, 3), (200, 30, 20), np.uint8)
    records = msgspec.to_builtins(InProcessModel(folder, allow_code=True).ask(image))
    assert [records[0]["label"], len(records)] == ["red", 3]


BOXES = {"boxes": [[[3, 6, 12, 18]]], "scores": [[0.9]], "labels": [[1]]}
CORNERS = {"corners": [[[[3, 6], [12, 6], [12, 18], [3, 18]]]], "scores": [[0.9]], "labels": [[1]]}
CLASSES = {"classes": np.ones((1, 2, 24, 24))}
CLASSES["classes"][0, 1] = 0
CLASSES["classes"][0, 1, 6:18, 3:12] = 9


@pytest.mark.parametrize(
    ("task", "outputs", "expected"),
    [
        ("OBJECT_DETECTION", BOXES, {"xmin": 8, "ymin": 12, "xmax": 32, "ymax": 36}),
        ("oriented_object_detection", CORNERS, {"cx": 20 / 64, "cy": 0.5, "w": 24 / 64, "h": 0.5, "r": 0}),
        ("IMAGE_SEGMENTATION", CLASSES, {}),
    ],
)
def test_recipe_and_its_test_are_of_the_task(
    tmp_path: Path, task: str, outputs: dict[str, Any], expected: dict[str, float]
) -> None:
    (tmp_path / "given").mkdir()
    arrays = {name: np.array(values, np.float32) for name, values in outputs.items()}
    file = graphs.constant(tmp_path / "given" / "graph.onnx", arrays, shape=(1, 3, 24, 24))
    (file.parent / "labels.txt").write_text("background\nboat\n")
    options = ("--from", "onnx", "--task", task, "--file", file, "--size", "24")
    output_of("init", "boats", *options, cwd=tmp_path)
    folder = tmp_path / "boats"
    model = InProcessModel(folder, allow_code=True)
    assert model.description.task_type == task.upper()
    records = msgspec.to_builtins(model.ask(np.full((48, 64, 3), (200, 30, 20), np.uint8)))
    (found,) = (record for record in records if record["label"] == "boat")
    assert {name: found[name] for name in expected} == pytest.approx(expected, abs=1e-5)
    assert found["score"] > 0.85
    (test,) = (value for name, value in runpy.run_path(str(folder / "test_boats.py")).items() if name[:5] == "test_")
    test()
    assert f"task type {task.upper()}" in (folder / "README.md").read_text()


@pytest.mark.parametrize("task", ["OBJECT_DETECTION", "IMAGE_SEGMENTATION"])
def test_starter_answers_a_noisy_photograph(task: str) -> None:
    """Comparing all pixels with each of its 60,000 bright regions would take minutes."""
    noise = np.where(np.random.default_rng(0).random((1000, 1000, 1)) < 0.1, 200, 0).astype(np.uint8).repeat(3, axis=2)
    noise[200:400, 100:300] = 255
    model = InProcessModel(SCAFFOLD / task.lower(), allow_code=True)
    (found,) = (msgspec.to_builtins(record) for record in model.ask(noise))
    assert found["label"] == "bright region"


def test_recipes_of_detectors_use_layouts_and_name_packages(tmp_path: Path) -> None:
    output = output_of("init", "ships", "--from", "torchscript", "--task", "OBJECT_DETECTION", cwd=tmp_path)
    assert "pip install 'charioteer[torch]'" in output
    assert "It needs `pip install 'charioteer[torch]'`." in (tmp_path / "ships" / "README.md").read_text()
    code = (tmp_path / "ships" / "model.py").read_text()
    assert "GraphModel" in code
    assert "xmin" in (tmp_path / "ships" / "test_ships.py").read_text()
    tasks = ("ORIENTED_OBJECT_DETECTION", "IMAGE_SEGMENTATION")
    for task, kind in itertools.product(tasks, ("tflite", "torch-export")):
        name = f"{task}.{kind}"
        output_of("init", name, "--from", kind, "--task", task, cwd=tmp_path)
        assert f'task_type = "{task}"' in (tmp_path / name / "model.py").read_text()


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("TorchScript", "torchscript"),
        ("torch.export", "torch-export"),
        ("TFLite", "tflite"),
        ("scikit-learn", "sklearn"),
        ("Other outputs", "onnx"),
        ("Detectors and segmenters", "layouts/tflite"),
    ],
)
def test_recipe_is_that_of_documentation(tmp_path: Path, heading: str, kind: str) -> None:
    page = (ROOT / "docs" / "python_models.md").read_text()
    section = page.split(f"### {heading}\n", 1)[1]
    code = section.split("```python\n", 1)[1].split("```", 1)[0]
    file = kind if "/" in kind else f"image_classification/{kind}"
    assert (SCAFFOLD / "recipes" / f"{file}.py.txt").read_text() == code


def test_recipe_without_file_says_what_to_add(tmp_path: Path) -> None:
    output = output_of("init", "flowers", "--from", "tflite", cwd=tmp_path)
    assert "Copy the model file there" in output
    assert 'declare "labels"' in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("boats",), "Expected --task, for a starter model, or --from"),
        (("boats", "--task", "TENSOR", "--from", "onnx"), "IMAGE_SEGMENTATION for --from onnx, got 'TENSOR'"),
        (("boats", "--task", "OBJECT_DETECTION", "--from", "sklearn"), "IMAGE_CLASSIFICATION for --from sklearn, got"),
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
    assert message in output_of("init", *arguments, cwd=tmp_path, status=1)
    assert list(tmp_path.iterdir()) == []
