"""MAITE models as Python classes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.settings.model import ModelError
from app.plugins.maite.python_models import own_scores
from tasks.task import TaskType
from tests.plugins.maite.classes import CLASSIFIER
from tests.support.data.images import rectangle
from tests.support.models.model_folders import write_and_load

DETECTOR = """
    import numpy as np
    class Target:
        def __init__(self, boxes, labels, scores):
            self.boxes, self.labels, self.scores = boxes, labels, scores
    class Model:
        metadata = {"id": "bright", "index2label": {0: "red", 2: "blue"}}
        def __call__(self, batch):
            found = []
            for image in batch:
                _, ys, xs = np.nonzero(image > 200)
                box = [xs.min(), ys.min(), xs.max() + 1, ys.max() + 1]
                colour = int(image.sum(axis=(1, 2)).argmax())
                found.append(Target(np.array([box]), np.array([colour]), np.array([[0.1, 0.2, 0.6]])))
            return found
"""


def test_maite_classifier_is_served(tmp_path: Path) -> None:
    model = write_and_load(tmp_path / "m", CLASSIFIER, task_type="IMAGE_CLASSIFICATION")
    assert list(model.description.labels) == ["dark", "bright"]
    found = msgspec.to_builtins(model.ask(np.full((48, 64, 3), 204, np.uint8)))
    assert found == [{"label": "bright", "score": 0.8}, {"label": "dark", "score": 0.2}]


def test_maite_detector_is_served(tmp_path: Path) -> None:
    model = write_and_load(tmp_path / "m", DETECTOR)
    (found,) = msgspec.to_builtins(model.ask(rectangle(colour=(0, 0, 255))))
    assert found == {"label": "blue", "score": 0.6, "xmin": 10, "ymin": 8, "xmax": 30, "ymax": 40}
    assert list(model.description.labels) == ["red", "1", "blue"]


def test_duplicates_of_maite_detector_are_suppressed_on_request(tmp_path: Path) -> None:
    code = DETECTOR.replace(
        "found.append(Target(np.array([box]), np.array([colour]), np.array([[0.1, 0.2, 0.6]])))",
        "found.append(Target(np.array([box] * 3), np.array([0, 0, 2]), np.array([0.7, 0.6, 0.9])))",
    )
    model = write_and_load(tmp_path / "m", code)
    image = rectangle(colour=(0, 0, 255))

    def labels(**parameters: object) -> list[str]:
        return [record["label"] for record in msgspec.to_builtins(model.ask(image, **parameters))]

    assert labels() == ["blue", "red", "red"]
    assert labels(nms=True) == ["blue", "red"]
    assert labels(nms=True, agnostic=True) == ["blue"]
    by_settings = write_and_load(tmp_path / "s", code, parameters={"nms": True, "agnostic": True})
    assert len(by_settings.ask(image)) == 1


def test_maite_implementation_may_be_factory_function(tmp_path: Path) -> None:
    code = DETECTOR.replace("class Model:", "class Bright:") + "\n    def Model():\n        return Bright()\n"
    assert len(write_and_load(tmp_path / "m", code).ask(rectangle(colour=(0, 0, 255)))) == 1


def test_maite_model_must_declare_task_type(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match='must declare its "task_type"'):
        write_and_load(tmp_path / "m", DETECTOR, task_type=None)


@pytest.mark.parametrize("scores", [np.zeros((2, 1)), np.zeros((1, 2)), np.array([0.1, 0.2])])
def test_scores_that_are_not_those_of_all_classes_stay(scores: np.ndarray[Any, Any]) -> None:
    target = SimpleNamespace(boxes=np.zeros((2, 4)), labels=np.array([1, 0]), scores=scores)
    assert own_scores(target, "predict()", TaskType.OBJECT_DETECTION) is target
