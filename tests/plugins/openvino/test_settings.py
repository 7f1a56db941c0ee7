"""Settings of a model and options of commands, which this plugin adds to those of core."""

import json
import shutil
from pathlib import Path

import pytest

from app.core.assembly.models import find_models
from app.core.plugins import registry
from app.core.settings.model import ModelError, read_settings
from app.core.settings.server import DEMO_MODELS
from app.plugins.openvino.settings import OpenVinoOptions, OpenVinoSettings
from app.public_api.in_process import InProcessModel


def test_folder_of_compiled_models_reaches_the_models() -> None:
    options = registry().model_options(model=DEMO_MODELS / "detector", compile_cache=Path("/cache"))
    (source,) = find_models(options)
    assert source.of(OpenVinoOptions).compile_cache == Path("/cache")


def test_settings_are_a_section(tmp_path: Path) -> None:
    file = tmp_path / "model-settings.json"
    file.write_text('{"openvino": {"streams": 2}}')
    assert read_settings(tmp_path).of(OpenVinoSettings) == OpenVinoSettings(streams=2)
    file.write_text('{"openvino": {"streams": 0}}')
    with pytest.raises(ModelError, match=r"openvino\.streams: Expected"):
        read_settings(tmp_path)


@pytest.mark.parametrize("settings", [{}, {"runtime": "onnxruntime"}])
def test_bf16_without_openvino_is_rejected(tmp_path: Path, settings: dict[str, object]) -> None:
    folder = shutil.copytree(DEMO_MODELS / "classifier", tmp_path / "classifier")
    (folder / "model-settings.json").write_text(json.dumps({"precision": "bf16", **settings}))
    with pytest.raises(ModelError, match='"precision": "bf16" needs "runtime": "openvino"; the runtime is onnxruntime'):
        InProcessModel(folder)
