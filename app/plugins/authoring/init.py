"""``charioteer init``."""

import re
import shlex
from pathlib import Path

from app.core.cli.terminal import console
from app.core.settings.model import SETTINGS_FILE, ModelError
from tasks.task import TaskType

_TEMPLATES = Path(__file__).parent / "scaffold"
_TEST = "test_model.py"
_README = "README.md"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def init(name: str, *, task: str, directory: Path | None = None) -> None:
    """Create a folder with a working starter model: a class, its settings, and a test.

    Args:
        name: Name of the model.
        task: Task type of the model, such as OBJECT_DETECTION.
        directory: Folder of the model; by default, a folder with the model's name in the current folder.
    """
    if not _NAME.fullmatch(name):
        raise ModelError(f"Expected a name of letters, digits, dots, dashes and underscores, got {name!r}")
    known = [task_type for task_type in TaskType if (_TEMPLATES / task_type.lower()).is_dir()]
    task_type = task.upper()
    if task_type not in known:
        expected = f"one of {', '.join(known)}, or a class of your own (docs/python_models.md)"
        raise ModelError(f"--task: Expected {expected}, got {task!r}")
    folder = directory or Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError(f"{folder} exists and is not empty; nothing was written")
    template = _TEMPLATES / task_type.lower()
    contents = {file.name: file.read_text() for file in sorted(template.iterdir()) if file.is_file()}
    # pytest collects only one of several test files with the same name, so put the model's name into it.
    contents[f"test_{re.sub(r'[^A-Za-z0-9]', '_', name)}.py"] = contents.pop(_TEST)
    if name != folder.resolve().name:
        contents[SETTINGS_FILE] = contents[SETTINGS_FILE].replace("{", f'{{"name": "{name}", ', 1)
    contents[_README] = (_TEMPLATES / _README).read_text().format(name=name, task=task_type, path=folder)
    folder.mkdir(parents=True, exist_ok=True)
    for file_name, content in contents.items():
        (folder / file_name).write_text(content)
    command = f"charioteer check {shlex.quote(str(folder))} --allow-code"
    console().print(f"Wrote {folder}: {', '.join(contents)}\nTry it: {command}", markup=False, soft_wrap=True)
