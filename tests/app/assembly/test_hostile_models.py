"""Folders that somebody else made: nothing of theirs runs, nothing of ours is read, and other models are served."""

import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from app.assembly.models import FIXTURE_MODELS, load, sources
from app.settings.model import ModelError, ModelSource
from app.settings.server import ModelOptions

GRAPH = FIXTURE_MODELS / "half_plus_two" / "model.onnx"


class Mark:
    """Makes a folder called `ran` when it is read back."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
        return os.mkdir, (str(self.folder / "ran"),)


def pickled(folder: Path) -> bytes:
    return pickle.dumps(Mark(folder.parent))


def zipped(folder: Path) -> bytes:
    with zipfile.ZipFile(folder / "x", "w") as made:
        made.writestr("archive/data.pkl", pickled(folder))
    return (folder / "x").rename(folder.parent / "zip").read_bytes()


def code(folder: Path) -> str:
    return f"import os\nos.mkdir({str(folder.parent / 'ran')!r})\n"


def a_pickle_called_onnx(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(pickled(folder))


def an_archive_of_torch_called_onnx(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(zipped(folder))


def weights_that_are_a_pickle(folder: Path) -> None:
    (folder / "config.json").write_text('{"model_type": "vit", "architectures": ["ViTForImageClassification"]}')
    (folder / "pytorch_model.bin").write_bytes(zipped(folder))


def a_pickle_of_joblib_named_by_settings(folder: Path) -> None:
    (folder / "model.joblib").write_bytes(pickled(folder))
    (folder / "model-settings.json").write_text('{"uri": "model.joblib"}')


def a_class_without_leave(folder: Path) -> None:
    (folder / "model.py").write_text(code(folder))
    (folder / "model-settings.json").write_text('{"implementation": "model:Model"}')


def a_class_beside_a_graph(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    a_class_without_leave(folder)


def a_library_as_settings(folder: Path) -> None:
    (folder / "ops.so").write_bytes(b"\x7fELF")
    shutil.copy(GRAPH, folder)
    (folder / "model-settings.json").write_text('{"onnxruntime": {"custom_ops": "ops.so"}}')


def a_provider_that_loads_a_library(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    (folder / "model-settings.json").write_text('{"onnxruntime": {"devices": ["/m/ops.so"]}}')


def a_pipe_for_a_graph(folder: Path) -> None:
    os.mkfifo(folder / "model.onnx")
    (folder / "model-settings.json").write_text("{}")


def a_pipe_for_settings(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    os.mkfifo(folder / "model-settings.json")


def a_pipe_for_a_manifest(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    os.mkfifo(folder / "model.sha256")


def a_graph_that_is_a_link(folder: Path) -> None:
    (folder / "model.onnx").symlink_to(GRAPH)


def settings_that_are_a_link(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    (folder.parent.parent / "secret.json").write_text('{"secret": "sesame"}')
    (folder / "model-settings.json").symlink_to("../../secret.json")


def settings_nested_without_end(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    (folder / "model-settings.json").write_text('{"parameters": {"a": ' + "[" * 100_000 + "]" * 100_000 + "}}")


def settings_of_a_gigabyte(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    (folder / "model-settings.json").touch()
    os.truncate(folder / "model-settings.json", 2**30)


def a_name_of_another_place(folder: Path) -> None:
    shutil.copy(GRAPH, folder)
    (folder / "model-settings.json").write_text(json.dumps({"name": "../good", "uri": "model.onnx"}))


HOSTILE: list[tuple[Callable[[Path], None], str]] = [
    (a_pickle_called_onnx, "is a PyTorch pickle"),
    (an_archive_of_torch_called_onnx, "is a PyTorch pickle"),
    (weights_that_are_a_pickle, "is a pickle"),
    (a_pickle_of_joblib_named_by_settings, "is not a model of any runtime here"),
    (a_class_without_leave, "--allow-code"),
    (a_class_beside_a_graph, "--allow-code"),
    (a_library_as_settings, "unknown field `custom_ops`"),
    (a_provider_that_loads_a_library, "device"),
    (a_pipe_for_a_graph, "neither a file nor a folder"),
    (a_pipe_for_settings, "neither a file nor a folder"),
    (a_pipe_for_a_manifest, "neither a file nor a folder"),
    (a_graph_that_is_a_link, "leads out of the model's folder"),
    (settings_that_are_a_link, "unknown field `secret`"),
    (settings_nested_without_end, "not valid JSON"),
    (settings_of_a_gigabyte, "more than 67,108,864"),
    (a_name_of_another_place, "printable characters without slashes"),
]


@pytest.mark.parametrize(("plant", "said"), HOSTILE, ids=lambda each: getattr(each, "__name__", ""))
def test_a_hostile_folder_is_refused_and_its_neighbour_served(
    tmp_path: Path, plant: Callable[[Path], None], said: str
) -> None:
    hostile, good = tmp_path / "models" / "hostile", tmp_path / "models" / "good"
    hostile.mkdir(parents=True)
    good.mkdir()
    shutil.copy(GRAPH, good)
    plant(hostile)
    found = {source.name: source for source in sources(ModelOptions(model_repository=tmp_path / "models"))}
    assert load(found["good"]).description.platform == "onnx"
    with pytest.raises(ModelError, match=said) as refused:
        load(found["hostile"])
    assert "sesame" not in str(refused.value)
    assert not (hostile.parent / "ran").exists()


def test_leave_cannot_be_taken_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    for name in ("allow_code", "require_manifest", "signing_key", "links", "root", "folder", "file"):
        (tmp_path / "m" / "model-settings.json").write_text(json.dumps({name: True}))
        with pytest.raises(ModelError, match=f"unknown field `{name}`"):
            sources(ModelOptions(model=tmp_path / "m"))


def test_a_fault_is_told_before_anything_is_opened(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="what was wrong"):
        load(ModelSource(name="m", version="1", folder=tmp_path / "nowhere", fault="what was wrong"))
