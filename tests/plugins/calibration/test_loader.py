"""Models that answer calibrated scores."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.assembly.models import find_models, load
from app.core.settings.model import ModelError
from app.core.settings.server import ModelOptions
from app.plugins.calibration.calibration import Calibration, Line, model_digest, write_calibration
from app.plugins.in_process.model import InProcessModel
from tests.support.models.model_folders import source_at, write_model
from tests.support.servers.server_process import ROOT

CLASSIFIER = ROOT / "fixtures" / "models" / "classifier"
CODE = """
class Model:
    def predict(self, image, parameters):
        found = [("cat", 0.4), ("dog", 0.4), ("dog", 0.1)]
        boxes = [{"label": label, "score": score, "xmin": 0, "ymin": 0, "xmax": 9, "ymax": 9} for label, score in found]
        return [box for box in boxes if box["score"] >= parameters.score_threshold]
"""
PIXELS = np.zeros((32, 32, 3), np.uint8)


def _calibrated(folder: Path, calibration: Calibration, **settings: object) -> Path:
    """Write the calibration of a model, and let it serve calibrated scores."""
    source = source_at(folder)
    write_calibration(source, msgspec.structs.replace(calibration, model_digest=model_digest(source)))
    file = folder / "model-settings.json"
    declared: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**declared, **settings, "scores": "calibrated"}))
    return folder


def test_classes_are_answered_with_their_temperature(tmp_path: Path) -> None:
    raw: Any = InProcessModel(CLASSIFIER).ask(PIXELS)
    folder = shutil.copytree(CLASSIFIER, tmp_path / "classifier")
    _calibrated(folder, Calibration(method="temperature", temperature=3.0))
    answers: Any = InProcessModel(folder).ask(PIXELS)
    expected = np.clip([record.score for record in raw], 1e-7, 1) ** (1 / 3)
    assert [answer.label for answer in answers] == [record.label for record in raw]
    assert [answer.score for answer in answers] == pytest.approx(expected / expected.sum(), abs=1e-5)


@pytest.mark.parametrize("isolate", [False, True])
def test_threshold_of_a_request_applies_to_probabilities(tmp_path: Path, isolate: bool) -> None:
    folder = write_model(tmp_path / "detector", CODE)
    higher, lower = Line(intercept=1.0), Line(intercept=-1.0)
    _calibrated(folder, Calibration(method="platt", line=higher, classes={"dog": lower}), isolate=isolate)
    model = InProcessModel(folder, allow_code=True)
    answers: Any = model.ask(PIXELS, score_threshold=0.6)
    assert [(answer.label, answer.score) for answer in answers] == [("cat", pytest.approx(0.6444, abs=1e-3))]
    assert len(model.ask(PIXELS, score_threshold=0.0)) == 3


def test_calibration_of_other_files_or_settings_is_rejected(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "detector", CODE)
    _calibrated(folder, Calibration(method="platt"), chariot_id="abc", parameters={"score_threshold": 0.1})
    InProcessModel(folder, allow_code=True)
    settings = json.loads((folder / "model-settings.json").read_text())
    changed = json.dumps({**settings, "arguments": {"size": 3}})
    for name, text in (("weights.bin", "1"), ("model-settings.json", changed)):
        (folder / name).write_text(text)
        with pytest.raises(ModelError, match="fitted for other files or settings of this model"):
            InProcessModel(folder, allow_code=True)
        (folder / "weights.bin").unlink(missing_ok=True)


def test_calibration_of_a_version_holds_in_its_repository(tmp_path: Path) -> None:
    _calibrated(write_model(tmp_path / "models" / "detector" / "2", CODE), Calibration(method="platt"))
    (source,) = find_models(ModelOptions(model_repository=tmp_path / "models", allow_code=True))
    assert (source.version, load(source).description.task_type) == ("2", "OBJECT_DETECTION")


def test_missing_calibration_and_task_without_scores_are_rejected(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "detector", CODE, scores="calibrated")
    with pytest.raises(ModelError, match=r"needs .*calibration.json; `charioteer evaluate DATASET .* --calibrate`"):
        InProcessModel(folder, allow_code=True)
    code = "class Model:\n    def predict(self, text):\n        return text\n"
    folder = write_model(tmp_path / "writer", code, task_type="TEXT_GENERATION")
    _calibrated(folder, Calibration(method="platt"))
    with pytest.raises(ModelError, match="TEXT_GENERATION has no scores to calibrate"):
        InProcessModel(folder, allow_code=True)


def test_threshold_of_the_model_keeps_all_that_the_request_wants() -> None:
    rng = np.random.default_rng(0)
    lines = {"cat": Line(slope=0.3, intercept=-1.0), "dog": Line(slope=4.0, intercept=2.0)}
    calibration = Calibration(method="platt", line=Line(slope=1.5), classes=lines)
    scores = rng.uniform(0, 1, 3000)
    probabilities = calibration.probabilities(["cat", "dog", "emu"] * 1000, scores)
    for threshold in (0.0, 0.01, 0.3, 0.5, 0.9, 1.0):
        assert scores[probabilities >= threshold].min(initial=1.0) >= calibration.raw_threshold(threshold)
