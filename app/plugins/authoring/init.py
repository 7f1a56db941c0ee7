"""``charioteer init``."""

import re
import shlex
import shutil
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter
from cyclopts.types import ExistingFile
from cyclopts.validators import Number

from app.core.cli.terminal import console
from app.core.runtimes.label_files import find_label_file
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource
from tasks.task import TaskType

_TEMPLATES = Path(__file__).parent / "scaffold"
_RECIPES = _TEMPLATES / "recipes"
_RECIPE_SUFFIX = ".py.txt"
"""Not ``.py``: the recipes of the documentation import packages that are not installed here."""
_TEST = "test_model.py"
_README = "README.md"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_WITHOUT_SIZE = ("tflite",)
"""Recipes that read the size of the input from the file."""
_PACKAGES = {
    "tflite": "ai-edge-litert",
    "torchscript": "'charioteer[torch]'",
    "torch-export": "'charioteer[torch]'",
    "sklearn": "scikit-learn",
}
"""What pip installs for the recipe, besides Charioteer."""
_LAYOUT_TASKS = (TaskType.OBJECT_DETECTION, TaskType.ORIENTED_OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION)
_STARTER = TaskType.OBJECT_DETECTION
"""The task type in the recipes that are used for several tasks."""


def init(
    name: str,
    *,
    task: Annotated[
        str | None, Parameter(help="Such as OBJECT_DETECTION; with --from, by default IMAGE_CLASSIFICATION.")
    ] = None,
    from_: Annotated[
        str | None,
        Parameter(name="--from", help="Framework of the model: tflite, torchscript, torch-export, sklearn, onnx."),
    ] = None,
    file: ExistingFile | None = None,
    size: Annotated[int | None, Parameter(validator=Number(gte=1, lte=16384))] = None,
    directory: Path | None = None,
) -> None:
    """Create a folder with a working starter model: a class, its settings, and a test.

    Args:
        name: Name of the model.
        task: Task type of the model.
        from_: Framework whose file the class loads.
        file: The model file of --from. It is copied into the folder, with a label file beside it.
        size: Height and width of the input of --from, pixels.
        directory: Folder of the model; by default, a folder with the model's name in the current folder.
    """
    if task is None and from_ is None:
        raise ModelError("Expected --task, for a starter model, or --from, for the model of a framework, or both")
    if from_ is None and (file is not None or size is not None):
        raise ModelError("--file and --size need --from")
    if not _NAME.fullmatch(name):
        raise ModelError(f"Expected a name of letters, digits, dots, dashes and underscores, got {name!r}")
    # pytest collects only one of several test files with the same name, so put the model's name into it.
    test_file = f"test_{re.sub(r'[^A-Za-z0-9]', '_', name)}.py"
    if file is not None and file.name in ("model.py", test_file, SETTINGS_FILE, _README):
        raise ModelError(f"--file: {file.name} is the name of a file that init writes; rename the model file")
    folder = directory or Path(name)
    task_type = (task or TaskType.IMAGE_CLASSIFICATION).upper()
    templates = _task_files(task_type) if from_ is None else _recipe_files(from_, task_type, file, size)
    files = {test_file if file_name == _TEST else file_name: content for file_name, content in templates.items()}
    packages = f" It needs `pip install {_PACKAGES[from_]}`." if from_ in _PACKAGES else ""
    readme = (_TEMPLATES / _README).read_text()
    files[_README] = readme.format(name=name, task=task_type, path=folder, packages=packages)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError(f"{folder} exists and is not empty; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, content in files.items():
        if isinstance(content, Path):
            shutil.copyfile(content, folder / file_name)
        else:
            (folder / file_name).write_text(content)
    settings = folder / SETTINGS_FILE
    if name != folder.resolve().name:
        settings.write_text(settings.read_text().replace("{", f'{{"name": "{name}", ', 1))
    lines = [f"Wrote {folder}: {', '.join(files)}"]
    if from_ is not None and file is None:
        lines.append(f'Copy the model file there, and set its name as "weights" in {SETTINGS_FILE}.')
    if from_ not in (None, "sklearn") and '"labels"' not in settings.read_text():
        lines.append(f'Found no label file: declare "labels" in {settings}.')
    if from_ in _PACKAGES:
        lines.append(f"Install what it needs: pip install {_PACKAGES[from_]}")
    lines.append(f"Try it: charioteer check {shlex.quote(str(folder))} --allow-code")
    console().print("\n".join(lines), markup=False, soft_wrap=True)


def _task_files(task: str) -> dict[str, str | Path]:
    """Return the template of a task: content, or a file to copy, by name."""
    known = [task_type for task_type in TaskType if (_TEMPLATES / task_type.lower()).is_dir()]
    if task not in known:
        expected = f"one of {', '.join(known)}, or a class of your own (docs/python_models.md)"
        raise ModelError(f"--task: Expected {expected}, got {task!r}")
    template = _TEMPLATES / task.lower()
    return {file.name: file for file in sorted(template.iterdir()) if file.is_file()}


def _recipe_files(kind: str, task: str, model: Path | None, size: int | None) -> dict[str, str | Path]:
    """Return the recipe for a framework and a task, with settings for the model file and its labels."""
    known = sorted(
        file.name.removesuffix(_RECIPE_SUFFIX) for file in (_RECIPES / TaskType.IMAGE_CLASSIFICATION.lower()).iterdir()
    )
    if kind not in known:
        raise ModelError(f"--from: Expected one of {', '.join(known)}, got {kind!r}")
    if size is not None and kind in _WITHOUT_SIZE:
        raise ModelError(f"--size: A model of {kind} declares its own size")
    arguments: dict[str, Any] = {} if size is None else {"size": size}
    files: dict[str, str | Path] = {
        "model.py": _recipe(kind, task),
        _TEST: _RECIPES / f"test_{task.lower()}{_RECIPE_SUFFIX}",
    }
    settings: dict[str, Any] = {"implementation": "model:Model", "task_type": task}
    if model is not None:
        arguments["weights"] = model.name
        files[model.name] = model
        labels = find_label_file(ModelSource(name="model", version="1", folder=model.parent), model.parent)
        if labels is not None:
            settings["labels"] = labels.name
            files[labels.name] = labels
    if arguments:
        settings["arguments"] = arguments
    files[SETTINGS_FILE] = msgspec.json.encode(settings).decode() + "\n"
    return files


def _recipe(kind: str, task: str) -> str:
    """Return the code of the recipe for a framework and a task. Raise ModelError if there is none."""
    own = {task_type: _RECIPES / task_type.lower() / f"{kind}{_RECIPE_SUFFIX}" for task_type in TaskType}
    shared = _RECIPES / "layouts" / f"{kind}{_RECIPE_SUFFIX}"
    by_layout = _LAYOUT_TASKS if shared.is_file() else ()
    known = [task_type for task_type, file in own.items() if file.is_file() or task_type in by_layout]
    if task not in known:
        raise ModelError(f"--task: Expected one of {', '.join(known)} for --from {kind}, got {task!r}")
    file = own[TaskType(task)]
    return file.read_text() if file.is_file() else shared.read_text().replace(_STARTER, task)
