"""Test which folders are models of the runtime, and which file of a folder is the model."""

from pathlib import Path

import msgspec
import pytest

from app.core.runtimes.onnxruntime.files.location import locate_graph
from app.core.runtimes.runtime import ONNXRUNTIME
from app.core.settings.model import ModelError, ModelSource


def source_with_files(folder: Path, *names: str) -> ModelSource:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    return ModelSource(name="model", version="1", folder=folder)


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["a.onnx"], "a.onnx"),
        (["a.onnx", "model.onnx"], "model.onnx"),
        (["A.ONNX", "notes.txt"], "A.ONNX"),
        (["config.json", "onnx/model.onnx"], "onnx/model.onnx"),
        (["a.onnx", "onnx/model.onnx"], "a.onnx"),
    ],
)
def test_graph_is_found_in_folder(tmp_path: Path, names: list[str], found: str) -> None:
    assert locate_graph(source_with_files(tmp_path, *names)) == tmp_path / found


@pytest.mark.parametrize(
    ("names", "reason"), [([], "contains no .onnx file"), (["a.onnx", "b.onnx"], r"several models \(a.onnx, b.onnx\)")]
)
def test_missing_or_ambiguous_graph_is_rejected(tmp_path: Path, names: list[str], reason: str) -> None:
    source = source_with_files(tmp_path, *names)
    with pytest.raises(ModelError, match=reason):
        locate_graph(source)


def test_file_of_other_format_is_rejected(tmp_path: Path) -> None:
    source = ModelSource(name="model", version="1", folder=tmp_path, file=tmp_path / "model.pt")
    with pytest.raises(ModelError, match=r"model.pt is a PyTorch file: export the model to ONNX"):
        locate_graph(source)


def test_onnx_files_are_recognised(tmp_path: Path) -> None:
    source = ModelSource(name="model", version="1", folder=tmp_path)
    assert not ONNXRUNTIME.recognises(source)
    assert not ONNXRUNTIME.recognises(msgspec.structs.replace(source, file=tmp_path / "model.pt"))
    assert ONNXRUNTIME.recognises(msgspec.structs.replace(source, file=tmp_path / "missing.onnx"))
    for name in ("a.onnx", "b.onnx"):
        assert ONNXRUNTIME.recognises(source_with_files(tmp_path, name))
