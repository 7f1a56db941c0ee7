"""Which models the runtime takes, and what importing it costs."""

import subprocess
import sys
from pathlib import Path

import pytest

from app.runtimes.onnxruntime import OnnxRuntime
from app.runtimes.runtime import Runtime
from app.settings.model import ModelError, ModelSource
from tasks.task import TaskType
from tests.app.runtimes.onnxruntime import graphs

RUNTIME: Runtime = OnnxRuntime()


def source(folder: Path, file: Path | None = None) -> ModelSource:
    return ModelSource(name="model", version="1", folder=folder, file=file)


def test_it_takes_onnx_files(tmp_path: Path) -> None:
    assert not RUNTIME.recognises(source(tmp_path))
    assert not RUNTIME.recognises(source(tmp_path, tmp_path / "model.pt"))
    assert RUNTIME.recognises(source(tmp_path, tmp_path / "missing.onnx"))
    (tmp_path / "a.onnx").touch()
    assert RUNTIME.recognises(source(tmp_path))


def test_it_takes_a_folder_of_several_to_say_that_one_must_be_named(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").touch()
    (tmp_path / "b.onnx").touch()
    assert RUNTIME.recognises(source(tmp_path))
    with pytest.raises(ModelError, match="several models"):
        RUNTIME.load(source(tmp_path))


def test_it_takes_the_three_files_of_a_language_model(tmp_path: Path) -> None:
    (tmp_path / "onnx").mkdir()
    for name in ("vision_encoder", "embed_tokens", "decoder_model_merged"):
        (tmp_path / "onnx" / f"{name}.onnx").touch()
    assert RUNTIME.recognises(source(tmp_path))


def test_it_inspects_and_loads_a_folder(tmp_path: Path) -> None:
    graphs.channel_means(tmp_path / "classifier.onnx")
    assert RUNTIME.name == "onnxruntime"
    assert RUNTIME.inspect(source(tmp_path)).task_type is TaskType.IMAGE_CLASSIFICATION
    assert RUNTIME.load(source(tmp_path)).description.labels == ("0", "1", "2")


def test_a_folder_without_a_model_is_explained(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"contains no .onnx file"):
        RUNTIME.load(source(tmp_path))


def test_importing_it_does_not_import_the_framework() -> None:
    code = "import app.runtimes.onnxruntime, sys; sys.exit('onnxruntime' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
