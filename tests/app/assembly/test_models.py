"""Settings that do not fit a model's runtime are rejected when it is loaded."""

import json
import shutil
from pathlib import Path

import pytest

from app.assembly.in_process import InProcessModel
from app.settings.model import SETTINGS_FILE, ModelError
from tests.support.servers.server_process import ROOT


@pytest.mark.parametrize("settings", [{}, {"runtime": "onnxruntime"}])
def test_bf16_without_openvino_is_rejected(tmp_path: Path, settings: dict[str, object]) -> None:
    folder = shutil.copytree(ROOT / "fixtures" / "models" / "classifier", tmp_path / "classifier")
    (folder / SETTINGS_FILE).write_text(json.dumps({"precision": "bf16", **settings}))
    with pytest.raises(ModelError, match='"precision": "bf16" needs "runtime": "openvino"; the runtime is onnxruntime'):
        InProcessModel(folder)
