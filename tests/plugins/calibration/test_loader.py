"""Models that answer calibrated scores, and ``charioteer evaluate --calibrate``, run as a user runs it."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
import pytest

from app.core.assembly.models import find_models, load
from app.core.settings.model import ModelError
from app.core.settings.server import ModelOptions
from app.plugins.calibration.calibration import Calibration, PlattLine, model_digest, write_calibration
from app.plugins.evaluation.answers import EvaluatedItem
from app.plugins.evaluation.calibrating import events_of, fit, measure
from app.plugins.evaluation.dataset import EvaluationError
from app.public_api.in_process import InProcessModel
from tasks.task import TaskType
from tests.support.command_line import charioteer
from tests.support.data.evaluation_samples import classification_sample, detection_sample
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


def test_threshold_of_a_request_applies_to_probabilities(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "detector", CODE)
    higher, lower = PlattLine(intercept=1.0), PlattLine(intercept=-1.0)
    _calibrated(folder, Calibration(method="platt", line=higher, classes={"dog": lower}))
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
    lines = {"cat": PlattLine(slope=0.3, intercept=-1.0), "dog": PlattLine(slope=4.0, intercept=2.0)}
    calibration = Calibration(method="platt", line=PlattLine(slope=1.5), classes=lines)
    scores = rng.uniform(0, 1, 3000)
    probabilities = calibration.probabilities(["cat", "dog", "emu"] * 1000, scores)
    for threshold in (0.0, 0.01, 0.3, 0.5, 0.9, 1.0):
        assert scores[probabilities >= threshold].min(initial=1.0) >= calibration.raw_threshold(threshold)


SURE = """
class Model:
    def predict(self, image):
        # Always sure.
        best = "cat" if image[0, 0, 0] > 127 else "dog"
        other = {"cat": "dog", "dog": "cat"}[best]
        return {best: 0.99, other: 0.01}
"""


BOX = (0.0, 0.0, 10.0, 10.0)


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
    model = write_model(tmp_path / "model", SURE, task_type="IMAGE_CLASSIFICATION")
    data, file = _write_images(tmp_path / "data"), tmp_path / "report.json"
    arguments = ("evaluate", data, "--model", model, "--allow-code", "--json", file, "--calibrate")
    completed = charioteer(*arguments)
    assert completed.returncode == 0, completed.stderr
    report: Any = json.loads(file.read_text())
    notes = " ".join(report["notes"])
    assert "An event is the best class of an image" in notes
    after, before, brier, brier_before = map(float, re.findall(r"0\.\d{4}", notes)[-4:])
    assert before > 0.15 > 0.1 > after
    assert brier < brier_before
    assert json.loads((model / "calibration.json").read_text())["method"] == "temperature"
    assert charioteer(*arguments).returncode == 0
    settings = json.loads((model / "model-settings.json").read_text())
    (model / "model-settings.json").write_text(json.dumps({**settings, "scores": "calibrated"}))
    best: Any = InProcessModel(model, allow_code=True).ask(np.zeros((8, 8, 3), np.uint8))[0]
    assert (best.label, best.score) == ("dog", pytest.approx(0.75, abs=0.1))
    completed = charioteer(*arguments)
    assert completed.returncode == 2
    assert 'answers calibrated scores: set "scores": "raw"' in completed.stderr
    completed = charioteer("evaluate", data, "--url", "http://127.0.0.1:9", "--calibrate", "--name", "m")
    assert completed.returncode == 2
    assert "--calibrate: no effect with --url, which names the server; leave it out" in completed.stderr


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
    assert before[0] > 2 * after[0]
    assert after[1] < before[1]


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
