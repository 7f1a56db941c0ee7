"""Hostile model folders: none of their code runs, no file outside them is read, and other models are served."""

import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from app.core.assembly.models import find_models, load
from app.core.settings.model import ModelError
from app.core.settings.server import DEMO_MODELS, ModelOptions

FILE = DEMO_MODELS / "half_plus_two" / "model.onnx"
GRAPH = FILE.read_bytes()


class Payload:
    """Create a folder called `ran` when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.folder / "ran"),)


def pickled(file: Path) -> None:
    file.write_bytes(pickle.dumps(Payload(file.parents[1])))


def torch_archive(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as torch_file:
        torch_file.writestr("archive/data.pkl", pickle.dumps(Payload(file.parents[1])))


def code(file: Path) -> None:
    file.write_text(f"import os\nos.mkdir({str(file.parents[1] / 'ran')!r})\n")


def link_to_secret(file: Path) -> None:
    (file.parents[2] / "secret.json").write_text('{"secret": "sesame"}')
    file.symlink_to("../../secret.json")


SETTINGS, CLASS = "model-settings.json", b'{"implementation": "model:Model"}'
NESTED = b'{"parameters": {"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
VIT = b'{"model_type": "vit", "architectures": ["ViTForImageClassification"]}'
Files = dict[str, bytes | Callable[[Path], None]]
"""The content of each file, or what creates it."""

HOSTILE: dict[str, tuple[Files, str]] = {
    "pickle named onnx": ({"model.onnx": pickled}, "is a PyTorch pickle"),
    "torch archive named onnx": ({"model.onnx": torch_archive}, "is a PyTorch pickle"),
    "pickled weights": ({"config.json": VIT, "pytorch_model.bin": torch_archive}, "is a pickle"),
    "joblib file in the settings": (
        {"model.joblib": pickled, SETTINGS: b'{"uri": "model.joblib"}'},
        "is a joblib file, .*#scikit-learn",
    ),
    "class without allow_code": ({"model.py": code, SETTINGS: CLASS}, "--allow-code"),
    "class beside a graph": ({"model.onnx": GRAPH, "model.py": code, SETTINGS: CLASS}, "--allow-code"),
    "operator library in the settings": (
        {"model.onnx": GRAPH, "ops.so": b"\x7fELF", SETTINGS: b'{"onnxruntime": {"custom_ops": "ops.so"}}'},
        "unknown field `custom_ops`",
    ),
    "device that is a library": (
        {"model.onnx": GRAPH, SETTINGS: b'{"onnxruntime": {"devices": ["/m/ops.so"]}}'},
        "device",
    ),
    "manifest is a pipe": ({"model.onnx": GRAPH, "model.sha256": os.mkfifo}, "neither a file nor a folder"),
    "settings are a link": ({"model.onnx": GRAPH, SETTINGS: link_to_secret}, "unknown field `secret`"),
    "deeply nested settings": ({"model.onnx": GRAPH, SETTINGS: NESTED}, "not valid JSON"),
}


@pytest.mark.parametrize(("files", "message"), HOSTILE.values(), ids=HOSTILE)
def test_hostile_folder_is_rejected_and_other_models_are_served(tmp_path: Path, files: Files, message: str) -> None:
    hostile, good = tmp_path / "models" / "hostile", tmp_path / "models" / "good"
    hostile.mkdir(parents=True)
    good.mkdir()
    shutil.copy(FILE, good)
    for name, content in files.items():
        if isinstance(content, bytes):
            (hostile / name).write_bytes(content)
        else:
            content(hostile / name)
    models = {source.name: source for source in find_models(ModelOptions(model_repository=tmp_path / "models"))}
    assert load(models["good"]).description.platform == "onnx"
    with pytest.raises(ModelError, match=message) as rejected:
        load(models["hostile"])
    assert "sesame" not in str(rejected.value)
    assert not (hostile.parent / "ran").exists()


def test_settings_cannot_grant_permissions(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    for name in ("allow_code", "require_manifest", "signing_key", "links", "root", "folder", "file"):
        (tmp_path / "m" / "model-settings.json").write_text(json.dumps({name: True}))
        with pytest.raises(ModelError, match=f"unknown field `{name}`"):
            find_models(ModelOptions(model=tmp_path / "m"))
