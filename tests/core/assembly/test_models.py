"""Settings that do not fit a model's runtime are rejected when it is loaded."""

import shutil
from pathlib import Path

from app.core.assembly.models import find_models
from app.core.settings.model import SETTINGS_FILE
from app.core.settings.server import ModelOptions
from tests.support.servers.server_process import ROOT


def test_devices_apply_to_models_without_devices_of_their_own(tmp_path: Path) -> None:
    for name in ("classifier", "detector"):
        shutil.copytree(ROOT / "fixtures" / "models" / name, tmp_path / name)
    (tmp_path / "classifier" / SETTINGS_FILE).write_text('{"onnxruntime": {"devices": ["cpu"]}}')
    sources = find_models(ModelOptions(model_repository=tmp_path, device="cuda:0, cpu"))
    assert [source.settings.onnxruntime.devices for source in sources] == [("cpu",), ("cuda:0", "cpu")]
