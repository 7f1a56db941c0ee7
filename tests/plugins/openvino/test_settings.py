"""The precision bf16 needs the runtime of this plugin."""

import json
import shutil
from pathlib import Path

import pytest

from app.core.settings.model import ModelError
from app.core.settings.server import DEMO_MODELS
from app.public_api.in_process import InProcessModel


@pytest.mark.parametrize("settings", [{}, {"runtime": "onnxruntime"}])
def test_bf16_without_openvino_is_rejected(tmp_path: Path, settings: dict[str, object]) -> None:
    folder = shutil.copytree(DEMO_MODELS / "classifier", tmp_path / "classifier")
    (folder / "model-settings.json").write_text(json.dumps({"precision": "bf16", **settings}))
    with pytest.raises(ModelError, match='"precision": "bf16" needs "runtime": "openvino"; the runtime is onnxruntime'):
        InProcessModel(folder)
