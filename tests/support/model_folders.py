"""Write folders of Python models for tests."""

import json
import textwrap
from pathlib import Path

import msgspec

from app.assembly.discovery import model_at
from app.assembly.in_process import InProcessModel
from app.settings.model import ModelSource

DETECTION = "OBJECT_DETECTION"


def write(folder: Path, code: str, files: dict[str, str] | None = None, **settings: object) -> Path:
    """Write a folder with ``model.py``, other `files`, and settings for its class ``Model``, a detector."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"model.py": code, **(files or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    declared = {"implementation": "model:Model", "task_type": DETECTION, **settings}
    known = {name: value for name, value in declared.items() if value is not None}
    (folder / "model-settings.json").write_text(json.dumps(known))
    return folder


def source(folder: Path, *, allow_code: bool = True) -> ModelSource:
    """Return the source of the model in a folder."""
    (found,) = model_at(folder)
    return msgspec.structs.replace(found, allow_code=allow_code)


def loaded(folder: Path, code: str, files: dict[str, str] | None = None, **settings: object) -> InProcessModel:
    """Write a model folder, and load it."""
    return InProcessModel(write(folder, code, files, **settings), allow_code=True)
