"""Compare folders of timm with timm's own model and transform."""

import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from app.core.settings.model import ModelError, ModelSource
from app.plugins.transformers.runtimes import TRANSFORMERS
from tests.plugins.transformers.torch.asking import answers, image_input, pil_image, scene
from tests.support.models import tiny_models
from tests.support.servers.client_environments import python_with
from tests.support.servers.server_process import ROOT

RUN = """
import json, sys
from pathlib import Path
sys.path.append(sys.argv[1])
from tests.plugins.transformers.torch.test_timm import scores
print(json.dumps([scores(Path(sys.argv[2]) / name, name) for name in ("test_vit", "test_resnet")]))
"""


def scores(folder: Path, architecture: str) -> list[list[dict[str, float]]]:
    """Return the scores by label of timm and of the runtime, for several images."""
    torch = tiny_models.torch()
    # A torch for CPUs cannot load the operators of a torchvision for CUDA, and timm needs none.
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        operators = torch.library.Library("torchvision", "FRAGMENT")
        for name in ("nms", "qnms"):
            if not hasattr(torch.ops.torchvision, name):
                operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    timm: Any = importlib.import_module("timm")
    torch.manual_seed(0)
    model = timm.create_model(architecture, num_classes=3).eval()
    with torch.no_grad():
        model.get_classifier().weight.mul_(10)
    names = {"label_names": list(tiny_models.LABELS)}
    timm.models.save_for_hf(model, folder, model_config=names, safe_serialization=True)
    reloaded = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    transform = timm.data.create_transform(**timm.data.resolve_model_data_config(reloaded), is_training=False)
    servable = TRANSFORMERS.load(ModelSource(name="m", version="1", folder=folder))
    found: list[list[dict[str, float]]] = []
    for pixels in (scene(640, 400), scene(90, 300, seed=1), scene(50, 40, seed=2)):
        with torch.no_grad():
            expected = reloaded(transform(pil_image(pixels))[None]).softmax(-1)[0].tolist()
        (records,) = answers(servable, image_input(pixels))
        by_label = {record.label: record.score for record in records}
        found.append([dict(zip(tiny_models.LABELS, expected, strict=True)), by_label])
    return found


def test_scores_equal_those_of_timm(tmp_path: Path) -> None:
    (packages,) = python_with("timm").parents[1].glob("lib/python*/site-packages")
    command = [sys.executable, "-W", "ignore", "-c", RUN, str(packages), str(tmp_path)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    for found in json.loads(process.stdout.splitlines()[-1]):
        assert len({json.dumps(expected) for expected, _ in found}) == 3
        for expected, scores_by_label in found:
            assert scores_by_label == pytest.approx(expected, abs=1e-3)


def test_folder_of_timm_without_timm_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = {"architecture": "resnet18", "num_classes": 3, "pretrained_cfg": {"input_size": [3, 224, 224]}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ModelError, match=r"needs the extra timm, pip install 'charioteer\[timm\]'"):
        TRANSFORMERS.load(ModelSource(name="m", version="1", folder=tmp_path))
