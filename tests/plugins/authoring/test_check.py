"""Test likely mistakes that ``charioteer check`` finds in models that can be served."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.core.runtimes.onnxruntime import graphs
from tests.support.command_line import output_of
from tests.support.models.model_folders import write_model

DETECTOR = """
class Model:
    def predict(self, image):
        height, width = image.shape[:2]
        box = {{"xmin": 0.1 * {x}, "ymin": 0.2 * {y}, "xmax": 0.5 * {x}, "ymax": 0.6 * {y}}}
        return [{{"label": "boat", "score": 0.9, **box}}]
"""
COLOURS: dict[str, Any] = {"task_type": "IMAGE_CLASSIFICATION", "labels": ["red", "green", "blue"]}
CLASSIFIER = """
import numpy as np

class Model:
    def predict(self, images):
        means = np.stack([image.reshape(-1, 3).mean(axis=0) for image in images]) / 255
        powers = np.exp(means)
        return powers / powers.sum(axis={axis}, keepdims=True)
"""


def checked(folder: Path, *options: str, status: int = 0) -> str:
    return " ".join(output_of("check", folder, *options, status=status).split())


def classifier(folder: Path, settings: str = "{}", softmax_axis: int = 1) -> Path:
    """Write a classifier of three colours, with the text of its settings."""
    text = f"""(float[1, 3, 8, 8] images) => (float[1, 3] probabilities) {{
        means = ReduceMean<axes = [2, 3], keepdims = 0>(images)
        probabilities = Softmax<axis = {softmax_axis}>(means)
    }}"""
    graphs.parse(folder / "model.onnx", text)
    (folder / "model-settings.json").write_text(settings)
    return folder


def test_duplicate_labels_are_reported(tmp_path: Path) -> None:
    text = checked(classifier(tmp_path, json.dumps({"labels": ["-", "-", "blue"]})))
    assert not [warning for warning in ("same label", "more than once", "scores are the same") if warning in text]
    text = checked(classifier(tmp_path, json.dumps({"labels": ["red", "red", "blue"]})))
    assert "Several classes have the same label: 'red'; answers do not distinguish them" in text


def test_duplicate_keys_in_settings_are_reported(tmp_path: Path) -> None:
    settings = '{"name": "a", "preprocessing": {"mean": [0, 0, 0], "mean": [1, 1, 1]}, "name": "b"}'
    text = checked(classifier(tmp_path, settings))
    assert 'model-settings.json has "mean", "name" more than once; only the last one has an effect' in text


def test_default_of_a_parameter_that_the_task_lacks_is_reported(tmp_path: Path) -> None:
    warning = "No effect in model-settings.json: parameters.score_treshold: Expected one of action, score_threshold, "
    assert warning in checked(classifier(tmp_path, '{"parameters": {"score_treshold": 0.9}}'))
    assert "No effect" not in checked(classifier(tmp_path, '{"parameters": {"score_threshold": 0.9}}'))


def test_duplicate_keys_of_a_rejected_model_are_reported(tmp_path: Path) -> None:
    settings = '{"task_type": "IMAGE_CLASSIFICATION", "task_type": "OBJECT_DETECTION"}'
    assert 'has "task_type" more than once' in checked(classifier(tmp_path, settings), status=1)


FRACTIONS, DEGREES = "numbers are probably fractions", "angles are probably degrees"
ORIENTED = """
class Model:
    def predict(self, image):
        height, width = image.shape[:2]
        return {{"boxes": [[{box}]], "scores": [{score}], "labels": ["ship"]}}
"""


@pytest.mark.parametrize("score", ["0.9", "0.1"])
@pytest.mark.parametrize(("x", "y", "warns"), [("1", "1", True), ("width", "height", False)])
def test_boxes_of_a_class_that_are_fractions_are_reported(
    tmp_path: Path, x: str, y: str, score: str, *, warns: bool
) -> None:
    folder = write_model(tmp_path / "boats", DETECTOR.format(x=x, y=y).replace("0.9", score))
    assert (FRACTIONS in checked(folder, "--allow-code")) is warns


@pytest.mark.parametrize(
    ("box", "warning"),
    [
        ("0.5, 0.5, 0.2, 0.1, 0.3", FRACTIONS),
        ("320, 240, 60, 20, 45", DEGREES),
        ("320, 240, 60, 20, -1.5", ""),
    ],
)
@pytest.mark.parametrize("score", ["0.9", "0.1"])
def test_oriented_boxes_of_a_class_in_other_units_are_reported(
    tmp_path: Path, box: str, warning: str, score: str
) -> None:
    folder = write_model(
        tmp_path / "ships", ORIENTED.format(box=box, score=score), task_type="ORIENTED_OBJECT_DETECTION"
    )
    text = checked(folder, "--allow-code")
    assert [known for known in (FRACTIONS, DEGREES) if known in text] == [warning] * bool(warning)


def test_boxes_of_a_graph_that_are_fractions_are_reported(tmp_path: Path) -> None:
    candidates = graphs.raw([[0.5, 0.5, 0.2, 0.1, 0.2, 0.1]] * 84)
    graphs.constant(tmp_path / "model.onnx", {"output0": candidates}, shape=(1, 3, 64, 64))
    (tmp_path / "model-settings.json").write_text(json.dumps({"labels": ["car", "bus"]}))
    assert "Guessed: boxes, " in checked(tmp_path)


@pytest.mark.parametrize(("second", "warns"), [("cat", True), ("dog", False)])
def test_records_of_a_class_with_one_label_are_reported(tmp_path: Path, second: str, *, warns: bool) -> None:
    answer = f'[{{"label": "cat", "score": 0.5}}, {{"label": "{second}", "score": float(image.mean()) / 999}}]'
    code = f"class Model:\n    def predict(self, image):\n        return {answer}\n"
    folder = write_model(tmp_path / "pets", code, task_type="IMAGE_CLASSIFICATION", labels=["cat", "dog"])
    text = checked(folder, "--allow-code")
    assert ("One answer has several records with one label" in text) is warns


@pytest.mark.parametrize(("axis", "is_reported"), [(0, True), (1, False)])
def test_scores_that_ignore_the_image_are_reported(tmp_path: Path, axis: int, *, is_reported: bool) -> None:
    warning = "softmax over the batch instead of the classes"
    (tmp_path / "graph").mkdir()
    assert (warning in checked(classifier(tmp_path / "graph", softmax_axis=axis))) is is_reported
    folder = write_model(tmp_path / "class", CLASSIFIER.format(axis=axis), **COLOURS)
    assert (warning in checked(folder, "--allow-code")) is is_reported


def test_warnings_of_numpy_are_not_printed(tmp_path: Path) -> None:
    code = CLASSIFIER.format(axis=1).replace("/ 255", "* 1000")
    code = code.replace("np.exp(means)", "1 + 0 * np.exp(means) / 1e309")
    text = checked(write_model(tmp_path / "class", code, **COLOURS), "--allow-code", status=1)
    assert "RuntimeWarning" not in text
    assert "Expected finite numbers" in text


def test_failing_graph_prints_only_the_error(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = "(float[1, 3, 8, 8] images) => (float[b, 7] output0) <int64[2] shape = {5, 7}>"
    graphs.parse(tmp_path / "model.onnx", text + "{ output0 = Reshape(images, shape) }")
    assert "cannot run on a 8x8 image: The model failed: Non-zero status code" in checked(tmp_path, status=1)
    assert capfd.readouterr().err == ""
