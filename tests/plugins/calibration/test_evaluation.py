"""``charioteer evaluate --calibrate``, run as a user runs it."""

import json
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from app.core.settings.command_options import VALUES
from app.plugins.calibration.evaluation.fit import events_of, fit
from app.plugins.calibration.evaluation.report import measure
from app.plugins.calibration.settings import CalibrationOptions
from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.dataset import EvaluationError
from app.plugins.in_process.model import InProcessModel
from tasks.task import TaskType
from tests.support.command_line import charioteer
from tests.support.data.evaluation_samples import classification_sample, detection_sample
from tests.support.models.model_folders import write_model

CODE = """
class Model:
    def predict(self, image):
        # Always sure.
        best = "cat" if image[0, 0, 0] > 127 else "dog"
        other = {"cat": "dog", "dog": "cat"}[best]
        return {best: 0.99, other: 0.01}
"""


BOX = (0.0, 0.0, 10.0, 10.0)


@pytest.fixture(autouse=True)
def _options(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the options of a command, which runs in this process."""
    monkeypatch.setitem(VALUES, CalibrationOptions, CalibrationOptions())


def _write_images(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    for index in range(120):
        label = ("cat", "dog")[index % 2]
        pixels = rng.integers(0, 255, (8, 8, 3), np.uint8)
        pixels[:2, :2] = 255 if (label == "cat") == (index % 8 > 1) else 0
        (folder / label).mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(folder / label / f"{index}.png"), pixels)
    return folder


def test_calibration_is_fitted_reported_and_served(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", CODE, task_type="IMAGE_CLASSIFICATION")
    data, out = _write_images(tmp_path / "data"), tmp_path / "out"
    arguments = ("evaluate", data, "--model", model, "--allow-code", "--out", out, "--calibrate")
    completed = charioteer(*arguments)
    assert completed.returncode == 0, completed.stderr
    report: Any = json.loads((out / "report.json").read_text())
    before, after = report["tables"][-1]["rows"]
    assert (before["scores"], after["scores"]) == ("before", "after")
    assert before["ECE"] > 0.15 > 0.1 > after["ECE"]
    assert after["Brier"] < before["Brier"]
    assert report["charts"][-1]["title"] == "Reliability"
    assert "An event is the best class of an image" in " ".join(report["notes"])
    assert b"Reliability" in (out / "report.html").read_bytes()
    assert json.loads((model / "calibration.json").read_text())["method"] == "temperature"
    answered = (out / "predictions.jsonl").read_bytes()
    assert charioteer(*arguments).returncode == 0
    assert (out / "predictions.jsonl").read_bytes() == answered
    settings = json.loads((model / "model-settings.json").read_text())
    (model / "model-settings.json").write_text(json.dumps({**settings, "scores": "calibrated"}))
    best: Any = InProcessModel(model, allow_code=True).ask(np.zeros((8, 8, 3), np.uint8))[0]
    assert (best.label, best.score) == ("dog", pytest.approx(0.75, abs=0.1))
    completed = charioteer(*arguments)
    assert completed.returncode == 2
    assert 'answers calibrated scores: set "scores": "raw"' in completed.stderr
    completed = charioteer("evaluate", data, "--url", "http://127.0.0.1:9", "--calibrate", "--name", "m")
    assert completed.returncode == 2
    assert "--calibrate needs the files of the model: name it with --model" in completed.stderr


def test_lines_make_detections_frequencies_and_keep_rare_classes_together() -> None:
    rng = np.random.default_rng(0)
    results: list[EvaluatedItem] = []
    for index in range(600):
        label = "cat" if index % 2 else ("dog", "emu")[index % 20 == 0]
        score = float(rng.uniform(0.1, 0.99))
        slope, intercept = (0.5, -1.0) if label == "cat" else (1.5, -1.5)
        odds = slope * np.log(score / (1 - score)) + intercept
        is_there = rng.uniform() < 1 / (1 + np.exp(-odds))
        truth = [(label, BOX)] if is_there else []
        results.append(detection_sample(truth, [(label, score, BOX)], name=f"{index}.jpg"))
    labels, task = ["cat", "dog", "emu"], TaskType.OBJECT_DETECTION
    calibration = fit(results[:300], labels, task)
    assert (calibration.method, [*calibration.classes]) == ("platt", ["cat", "dog"])
    before, after = (measure(events_of(results[300:], labels, task, used)) for used in (None, calibration))
    assert before.ece.value > 2 * after.ece.value
    assert after.brier.value < before.brier.value


def test_classes_that_do_not_add_up_to_one_get_lines() -> None:
    scores = [{"cat": 0.9, "dog": 0.8 - index % 3 / 10} for index in range(60)]
    labels = ["cat" if index % 3 else "dog" for index in range(60)]
    results = [classification_sample(*sample, "a.jpg") for sample in zip(labels, scores, strict=True)]
    assert fit(results, ["cat", "dog"], TaskType.IMAGE_CLASSIFICATION).method == "platt"


def test_scores_without_information_and_small_datasets_are_rejected() -> None:
    results = [
        detection_sample([("cat", BOX)] if index % 2 else [], [("cat", 0.4 if index % 2 else 0.8, BOX)])
        for index in range(60)
    ]
    with pytest.raises(EvaluationError, match="higher scores are not more often right"):
        fit(results, ["cat"], TaskType.OBJECT_DETECTION)
    with pytest.raises(EvaluationError, match="Expected at least 20 right and as many wrong predictions"):
        fit(results[:30], ["cat"], TaskType.OBJECT_DETECTION)
