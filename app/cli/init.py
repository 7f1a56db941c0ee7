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
    """Make a folder with a model to begin with: a class that works, its settings, and a test.

    Args:
        name: What the model is called.
        task: What it does.
        directory: The model's folder; one called after it, here, otherwise.
    """
    template = _TEMPLATES / task.lower()
    known = [each for each in TaskType if (_TEMPLATES / each.lower()).is_dir()]
    if task.upper() not in known:
        raise ModelError(f"--task: Expected one of {', '.join(known)}, got {task!r}")
    if not _NAME.fullmatch(name):
        raise ModelError(f"Expected a name of letters, digits, dots, dashes and underscores, got {name!r}")
    folder = directory or Path(name)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ModelError(f"{folder} is there already and is not empty; nothing was written")
    folder.mkdir(parents=True, exist_ok=True)
    # Of two test files of one name pytest collects only the first, unless told otherwise.
    test = f"test_{re.sub(r'[^A-Za-z0-9]', '_', name)}.py"
    for file in sorted(each for each in template.iterdir() if each.is_file()):
        written = test if file.name == _TEST else file.name
        (folder / written).write_bytes(file.read_bytes())
    if name != folder.resolve().name:
        _call(folder / "model-settings.json", name)
    readme = (_TEMPLATES / "README.md").read_text()
    (folder / "README.md").write_text(readme.format(name=name, task=task.upper(), path=folder))
    printed = console()
    printed.print(f"Wrote {folder}: model.py, model-settings.json, {test}, README.md", markup=False)
    printed.print(f"Try it: charioteer check {folder} --allow-code", markup=False)


def _call(settings: Path, name: str) -> None:
    """A name of its own, where the folder's is another."""
    settings.write_text(settings.read_text().replace("{", f'{{"name": "{name}", ', 1))
