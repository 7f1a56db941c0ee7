"""Test likely mistakes that ``charioteer check`` finds in models that can be served."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.core.runtimes.onnxruntime import graphs
from tests.support.command_line import output_of
from tests.support.models.model_folders import write_model

CLASSIFIER = """
import numpy as np

class Model:
    def predict(self, image):
        return {{"red": {red}}}
"""
COLOURS: dict[str, Any] = {"task_type": "IMAGE_CLASSIFICATION", "labels": ["red"]}


def checked(folder: Path, *options: str, status: int = 0) -> str:
    return " ".join(output_of("check", folder, *options, status=status).split())


@pytest.mark.parametrize(("name", "warns"), [("score_treshold", True), ("score_threshold", False)])
def test_default_of_a_parameter_that_the_task_lacks_is_reported(tmp_path: Path, name: str, *, warns: bool) -> None:
    folder = write_model(tmp_path / "class", CLASSIFIER.format(red=1), parameters={name: 0.9}, **COLOURS)
    warning = "No effect in model-settings.json: parameters.score_treshold: Expected one of action, score_threshold, "
    assert (warning in checked(folder, "--allow-code")) is warns


FRACTIONS, DEGREES = "numbers are probably fractions", "angles are probably degrees"
BOXES = """
class Model:
    def predict(self, image):
        return {{"boxes": [[{box}]], "scores": [{score}], "labels": ["ship"]}}
"""


@pytest.mark.parametrize(
    ("task_type", "box", "warning"),
    [
        ("OBJECT_DETECTION", "0.1, 0.2, 0.5, 0.6", FRACTIONS),
        ("OBJECT_DETECTION", "64, 96, 320, 288", ""),
        ("ORIENTED_OBJECT_DETECTION", "0.5, 0.5, 0.2, 0.1, 0.3", FRACTIONS),
        ("ORIENTED_OBJECT_DETECTION", "320, 240, 60, 20, 45", DEGREES),
        ("ORIENTED_OBJECT_DETECTION", "320, 240, 60, 20, -1.5", ""),
    ],
)
@pytest.mark.parametrize("score", ["0.9", "0.1"])
def test_boxes_of_a_class_in_other_units_are_reported(
    tmp_path: Path, task_type: str, box: str, warning: str, score: str
) -> None:
    folder = write_model(tmp_path / "ships", BOXES.format(box=box, score=score), task_type=task_type)
    text = checked(folder, "--allow-code")
    assert [known for known in (FRACTIONS, DEGREES) if known in text] == [warning] * bool(warning)


def test_boxes_of_a_graph_that_are_fractions_are_reported(tmp_path: Path) -> None:
    candidates = graphs.raw([[0.5, 0.5, 0.2, 0.1, 0.2, 0.1]] * 84)
    graphs.constant(tmp_path / "model.onnx", {"output0": candidates}, shape=(1, 3, 64, 64))
    (tmp_path / "model-settings.json").write_text(json.dumps({"labels": ["car", "bus"]}))
    assert "Guessed: boxes, " in checked(tmp_path)


def test_warnings_of_numpy_are_not_printed(tmp_path: Path) -> None:
    code = CLASSIFIER.format(red="1 + 0 * np.exp(image.astype(np.float32).mean() * 1000) / 1e309")
    text = checked(write_model(tmp_path / "class", code, **COLOURS), "--allow-code", status=1)
    assert "RuntimeWarning" not in text
    assert "Expected finite numbers" in text


def test_model_of_texts_is_tried_on_a_text(tmp_path: Path) -> None:
    code = "class Model:\n    def predict(self, text):\n        return 'good'\n"
    folder = write_model(tmp_path / "moods", code, task_type="TEXT_GENERATION")
    assert "Tried on one text, 1 result in " in checked(folder, "--allow-code")


def test_failing_graph_prints_only_the_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = "(float[1, 3, 8, 8] images) => (float[b, 7] output0) <int64[2] shape = {5, 7}>"
    graphs.parse(tmp_path / "model.onnx", text + "{ output0 = Reshape(images, shape) }")
    assert "cannot run on a 8x8 image: The model failed: Non-zero status code" in checked(tmp_path, status=1)
    assert capfd.readouterr().err == ""
