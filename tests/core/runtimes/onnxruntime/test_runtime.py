"""Test which models the runtime recognises, and that importing it is cheap."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.core.runtimes.runtime import ONNXRUNTIME
from app.core.settings.model import ModelError, ModelSource
from tasks.task import TaskType
from tests.core.runtimes.onnxruntime import graphs

RUNTIME = ONNXRUNTIME


def source(folder: Path, file: Path | None = None) -> ModelSource:
    return ModelSource(name="model", version="1", folder=folder, file=file)


def test_onnx_files_are_recognised(tmp_path: Path) -> None:
    assert not RUNTIME.recognises(source(tmp_path))
    assert not RUNTIME.recognises(source(tmp_path, tmp_path / "model.pt"))
    assert RUNTIME.recognises(source(tmp_path, tmp_path / "missing.onnx"))
    (tmp_path / "a.onnx").touch()
    assert RUNTIME.recognises(source(tmp_path))


def test_folder_of_several_graphs_is_recognised_but_not_loaded(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").touch()
    (tmp_path / "b.onnx").touch()
    assert RUNTIME.recognises(source(tmp_path))
    with pytest.raises(ModelError, match="several models"):
        RUNTIME.load(source(tmp_path))


def test_vision_language_model_files_are_recognised(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    for name in ("vision_encoder", "embed_tokens", "decoder_model_merged"):
        (tmp_path / "onnx" / f"{name}.onnx").touch()
    assert RUNTIME.recognises(source(tmp_path))


def test_folder_is_inspected_and_loaded(tmp_path: Path) -> None:
    graphs.channel_means(tmp_path / "classifier.onnx")
    assert RUNTIME.name == "onnxruntime"
    assert RUNTIME.inspect(source(tmp_path)).task_type is TaskType.IMAGE_CLASSIFICATION
    assert RUNTIME.load(source(tmp_path)).description.labels == ("0", "1", "2")


def test_folder_without_model_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"contains no .onnx file"):
        RUNTIME.load(source(tmp_path))


def test_importing_runtime_does_not_import_onnxruntime() -> None:
    modules = "app.core.runtimes.onnxruntime.loading, app.core.runtimes.runtime"
    code = f"import {modules}, sys; sys.exit('onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
