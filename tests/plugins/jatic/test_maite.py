"""Our models as models of MAITE, with the real package, and MAITE models as Python classes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import maite.protocols.image_classification as ic
import maite.protocols.object_detection as od
import msgspec
import numpy as np
import pytest

from app.core.settings.model import ModelError
from app.plugins.jatic.libraries import own_scores
from app.plugins.jatic.maite import MaiteClassifier, MaiteDetector, as_maite
from tasks.inference.error import InferenceError
from tasks.task import TaskType
from tests.support.data.images import rectangle
from tests.support.models.model_folders import write_and_load, write_model
from tests.support.servers.server_process import ROOT

MODELS = ROOT / "fixtures" / "models"
CLASSIFIER = """
    class Model:
        metadata = {"id": "brightness", "index2label": {0: "dark", 1: "bright"}}
        def __call__(self, batch):
            assert all(image.shape == (3, 48, 64) for image in batch)
            return [[1 - image.mean() / 255, image.mean() / 255] for image in batch]
"""


def channels_first(image: Any) -> Any:
    return np.ascontiguousarray(image.transpose(2, 0, 1))


def test_our_detector_implements_maite_protocol() -> None:
    detector = as_maite(MODELS / "detector")
    assert isinstance(detector, MaiteDetector)
    checked: od.Model = detector
    assert isinstance(checked, cast("Any", od.Model))
    index = detector.metadata.get("index2label", {})
    red = channels_first(rectangle(192, 192, (40, 50, 100, 110)))
    first, second = detector([red, np.zeros((3, 100, 120), np.uint8)])
    best = int(first.scores.argmax())
    assert index[int(first.labels[best])] == "red square"
    assert first.boxes[best].tolist() == pytest.approx([40, 50, 100, 110], abs=3)
    assert len(first.boxes) == len(first.labels) == len(first.scores)
    assert len(second.boxes) == 0 or second.scores.max() < 0.5


def test_as_maite_accepts_score_threshold() -> None:
    detector = as_maite(MODELS / "detector", score_threshold=0.5)
    assert isinstance(detector, MaiteDetector)
    (found,) = detector([channels_first(rectangle(192, 192, (40, 50, 100, 110)))])
    assert found.scores.min() >= 0.5


@pytest.mark.parametrize("kind", [np.uint8, np.float32, np.float64])
def test_our_classifier_implements_maite_protocol(tmp_path: Path, kind: type[Any]) -> None:
    write_model(tmp_path / "m", CLASSIFIER, task_type="IMAGE_CLASSIFICATION")
    classifier = as_maite(tmp_path / "m", allow_code=True)
    assert isinstance(classifier, MaiteClassifier)
    checked: ic.Model = classifier
    assert isinstance(checked, cast("Any", ic.Model))
    assert classifier.metadata == {"id": "m", "index2label": {0: "dark", 1: "bright"}}
    image = np.full((3, 48, 64), 204, np.uint8)
    (found,) = classifier([image if kind is np.uint8 else (image / 255).astype(kind)])
    assert found.tolist() == pytest.approx([0.2, 0.8])


def test_classes_with_equal_names_keep_their_positions(tmp_path: Path) -> None:
    labels = "labels = ['crane', 'cat', 'crane']"
    code = f"class Model:\n    {labels}\n    def predict(self, image): return [0.25, 0.5, 0.75]"
    write_model(tmp_path / "m", code, task_type="IMAGE_CLASSIFICATION")
    classifier = as_maite(tmp_path / "m", allow_code=True)
    assert isinstance(classifier, MaiteClassifier)
    assert classifier([np.zeros((3, 4, 5), np.uint8)])[0].tolist() == [0.25, 0.5, 0.75]


@pytest.mark.parametrize("labels", ["", "\n    labels = ['a']"])
def test_label_without_a_number_is_reported_with_advice(tmp_path: Path, labels: str) -> None:
    code = f"class Model:{labels}\n    def predict(self, image): return {{'cat': 1.0}}"
    write_model(tmp_path / "m", code, task_type="IMAGE_CLASSIFICATION")
    with pytest.raises(ValueError, match=r"'cat' is not among the model's labels.*; declare labels in model-settings"):
        as_maite(tmp_path / "m", allow_code=True)([np.zeros((3, 4, 5), np.uint8)])


def test_maite_predict_runs_our_model(tmp_path: Path) -> None:
    from maite.tasks import predict

    write_model(tmp_path / "m", CLASSIFIER, task_type="IMAGE_CLASSIFICATION")
    model: Any = as_maite(tmp_path / "m", allow_code=True)
    pixels = [np.full((3, 48, 64), light, np.uint8) for light in (0, 204)]
    images: Any = [(pixels[index], np.eye(2)[index], {"id": str(index)}) for index in (0, 1)]
    predictions: Any = predict(model=model, dataset=images, batch_size=2)[0]
    assert np.array(predictions[0]) == pytest.approx(np.array([[1, 0], [0.2, 0.8]]))


def test_task_without_maite_protocol_is_rejected() -> None:
    with pytest.raises(ModelError, match="MAITE has no models of the task IMAGE_SEGMENTATION"):
        as_maite(MODELS / "segmenter")


def test_image_without_channels_is_rejected() -> None:
    with pytest.raises(InferenceError, match=r"Expected images of shape \(channels, height, width\), got \(48, 64\)"):
        as_maite(MODELS / "classifier")([np.zeros((48, 64), np.uint8)])


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
