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
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import DEMO_MODELS, ModelOptions

GRAPH = DEMO_MODELS / "half_plus_two" / "model.onnx"


class Payload:
    """Create a folder called `ran` when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.folder / "ran"),)


def pickled(folder: Path) -> bytes:
    return pickle.dumps(Payload(folder.parent))


def torch_archive(folder: Path) -> bytes:
    with zipfile.ZipFile(folder / "x", "w") as torch_file:
        torch_file.writestr("archive/data.pkl", pickled(folder))
    return (folder / "x").rename(folder.parent / "zip").read_bytes()


def code(folder: Path) -> str:
    return f"import os\nos.mkdir({str(folder.parent / 'ran')!r})\n"


def pickle_named_onnx(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(pickled(folder))


def torch_archive_named_onnx(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(torch_archive(folder))


def pickled_weights(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "vit", "architectures": ["ViTForImageClassification"]}')
    (folder / "pytorch_model.bin").write_bytes(torch_archive(folder))


def joblib_file_in_the_settings(folder: Path) -> None:
    (folder / "model.joblib").write_bytes(pickled(folder))
    (folder / "model-settings.json").write_text('{"uri": "model.joblib"}')


def class_without_allow_code(folder: Path) -> None:
    (folder / "model.py").write_text(code(folder))
    (folder / "model-settings.json").write_text('{"implementation": "model:Model"}')


def class_beside_a_graph(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    class_without_allow_code(folder)


def operator_library_in_the_settings(folder: Path) -> None:
    (folder / "ops.so").write_bytes(b"\x7fELF")
    shutil.copy(GRAPH, folder)
    (folder / "model-settings.json").write_text('{"onnxruntime": {"custom_ops": "ops.so"}}')


def device_that_is_a_library(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    (folder / "model-settings.json").write_text('{"onnxruntime": {"devices": ["/m/ops.so"]}}')


def graph_is_a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "model.onnx")
    (folder / "model-settings.json").write_text("{}")


def settings_are_a_pipe(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    os.mkfifo(folder / "model-settings.json")


def manifest_is_a_pipe(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    os.mkfifo(folder / "model.sha256")


def graph_is_a_link(folder: Path) -> None:
    (folder / "model.onnx").symlink_to(GRAPH)


def settings_are_a_link(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    (folder.parent.parent / "secret.json").write_text('{"secret": "sesame"}')
    (folder / "model-settings.json").symlink_to("../../secret.json")


def deeply_nested_settings(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    (folder / "model-settings.json").write_text('{"parameters": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}")


def huge_settings(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    (folder / "model-settings.json").touch()
    os.truncate(folder / "model-settings.json", 2**30)


def name_with_a_path(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    (folder / "model-settings.json").write_text(json.dumps({"name": "../good", "uri": "model.onnx"}))


HOSTILE: list[tuple[Callable[[Path], None], str]] = [
    (pickle_named_onnx, "is a PyTorch pickle"),
    (torch_archive_named_onnx, "is a PyTorch pickle"),
    (pickled_weights, "is a pickle"),
    (joblib_file_in_the_settings, "is a joblib file, .* init NAME --from sklearn"),
    (class_without_allow_code, "--allow-code"),
    (class_beside_a_graph, "--allow-code"),
    (operator_library_in_the_settings, "unknown field `custom_ops`"),
    (device_that_is_a_library, "device"),
    (graph_is_a_pipe, "neither a file nor a folder"),
    (settings_are_a_pipe, "neither a file nor a folder"),
    (manifest_is_a_pipe, "neither a file nor a folder"),
    (graph_is_a_link, "leads out of the model's folder"),
    (settings_are_a_link, "unknown field `secret`"),
    (deeply_nested_settings, "not valid JSON"),
    (huge_settings, "more than 67,108,864"),
    (name_with_a_path, "printable characters without slashes"),
]


@pytest.mark.parametrize(("create", "message"), HOSTILE, ids=lambda value: getattr(value, "__name__", ""))
def test_hostile_folder_is_rejected_and_other_models_are_served(
    tmp_path: Path, create: Callable[[Path], None], message: str
) -> None:
    hostile, good = tmp_path / "models" / "hostile", tmp_path / "models" / "good"
    hostile.mkdir(parents=True)
    good.mkdir()
    shutil.copy(GRAPH, good)
    create(hostile)
    models = {source.name: source for source in find_models(ModelOptions(model_repository=tmp_path / "models"))}
    assert load(models["good"]).description.platform == "onnx"
    with pytest.raises(ModelError, match=message) as refused:
        load(models["hostile"])
    assert "sesame" not in str(refused.value)
    assert not (hostile.parent / "ran").exists()


def test_settings_cannot_grant_permissions(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    for name in ("allow_code", "require_manifest", "signing_key", "links", "root", "folder", "file"):
        (tmp_path / "m" / "model-settings.json").write_text(json.dumps({name: True}))
        with pytest.raises(ModelError, match=f"unknown field `{name}`"):
            find_models(ModelOptions(model=tmp_path / "m"))


def test_source_with_a_fault_is_rejected_before_files_are_opened(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="what was wrong"):
        load(ModelSource(name="m", version="1", folder=tmp_path / "nowhere", fault="what was wrong"))
