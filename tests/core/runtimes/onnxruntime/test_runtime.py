"""Test which models the runtime recognises, and that importing it is cheap."""

import subprocess
import sys
from pathlib import Path

from app.core.runtimes.runtime import ONNXRUNTIME
from app.core.settings.model import ModelSource
from tasks.task import TaskType
from tests.core.runtimes.onnxruntime import graphs


def source(folder: Path, file: Path | None = None) -> ModelSource:
    return ModelSource(name="model", version="1", folder=folder, file=file)


def test_onnx_files_are_recognised(tmp_path: Path) -> None:
    assert not ONNXRUNTIME.recognises(source(tmp_path))
    assert not ONNXRUNTIME.recognises(source(tmp_path, tmp_path / "model.pt"))
    assert ONNXRUNTIME.recognises(source(tmp_path, tmp_path / "missing.onnx"))
    for name in ("a.onnx", "b.onnx"):
        (tmp_path / name).touch()
        assert ONNXRUNTIME.recognises(source(tmp_path))


def test_folder_is_inspected_and_loaded(tmp_path: Path) -> None:
    graphs.channel_means(tmp_path / "classifier.onnx")
    assert ONNXRUNTIME.inspect(source(tmp_path)).task_type is TaskType.IMAGE_CLASSIFICATION
    assert ONNXRUNTIME.load(source(tmp_path)).description.labels == ("0", "1", "2")


def test_importing_runtime_does_not_import_onnxruntime() -> None:
    modules = "app.core.runtimes.onnxruntime.loading, app.core.runtimes.runtime"
    code = f"import {modules}, sys; sys.exit('onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
