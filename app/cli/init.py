"""``charioteer init``."""

import re
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from app.cli.terminal import console
from app.settings.model import ModelError
from tasks.task import TaskType

__all__ = ("init",)

_TEMPLATES = Path(__file__).parent / "scaffold"
_TEST = "test_model.py"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def init(
    name: str, *, task: Annotated[str, Parameter(help="Such as OBJECT_DETECTION.")], directory: Path | None = None
) -> None:
    """Create a folder with a working starter model: a class, its settings, and a test.

    Args:
        name: Name of the model.
        task: Task type of the model.
        directory: Folder of the model; by default, a folder with the model's name in the current folder.
    """
    template = _TEMPLATES / task.lower()
    known = [task_type for task_type in TaskType if (_TEMPLATES / task_type.lower()).is_dir()]
    if task.upper() not in known:
        raise ModelError(f"--task: Expected one of {', '.join(known)}, got {task!r}")
    if not _NAME.fullmatch(name):
        raise ModelError(f"Expected a name of letters, digits, dots, dashes and underscores, got {name!r}")
    folder = directory or Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError(f"{folder} exists and is not empty; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    # pytest collects only one of several test files with the same name, so put the model's name into it.
    test_file = f"test_{re.sub(r'[^A-Za-z0-9]', '_', name)}.py"
    for file in sorted(file for file in template.iterdir() if file.is_file()):
        file_name = test_file if file.name == _TEST else file.name
        (folder / file_name).write_bytes(file.read_bytes())
    if name != folder.resolve().name:
        _set_name(folder / "model-settings.json", name)
    readme = (_TEMPLATES / "README.md").read_text()
    (folder / "README.md").write_text(readme.format(name=name, task=task.upper(), path=folder))
    terminal = console()
    terminal.print(f"Wrote {folder}: model.py, model-settings.json, {test_file}, README.md", markup=False)
    terminal.print(f"Try it: charioteer check {folder} --allow-code", markup=False)


def _set_name(settings: Path, name: str) -> None:
    """Set the model's name in its settings."""
    settings.write_text(settings.read_text().replace("{", f'{{"name": "{name}", ', 1))
