"""Write folders of Python models for tests."""

import json
import textwrap
from pathlib import Path

import msgspec

from app.core.assembly.discovery import model_at
from app.core.settings.model import ModelSource
from app.public_api.in_process import InProcessModel

DETECTION = "OBJECT_DETECTION"


def write_model(folder: Path, code: str, files: dict[str, str] | None = None, **settings: object) -> Path:
    """Write a folder with ``model.py``, other `files`, and settings for its class ``Model``, a detector."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"model.py": code, **(files or {})}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
    all_settings = {"implementation": "model:Model", "task_type": DETECTION, **settings}
    present_settings = {name: value for name, value in all_settings.items() if value is not None}
    (folder / "model-settings.json").write_text(json.dumps(present_settings))
    return folder


def source_at(folder: Path, *, allow_code: bool = True) -> ModelSource:
    (source,) = model_at(folder)
    return msgspec.structs.replace(source, allow_code=allow_code)


def write_and_load(folder: Path, code: str, files: dict[str, str] | None = None, **settings: object) -> InProcessModel:
    return InProcessModel(write_model(folder, code, files, **settings), allow_code=True)
