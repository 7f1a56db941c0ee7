"""Python classes may return objects of supervision and Ultralytics."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.runtimes.python.outputs.value_parsing import ClassNames
from app.core.runtimes.python.task_adapters import TASK_ADAPTERS
from app.plugins.jatic.libraries import LIBRARIES
from tasks.inference.error import InferenceError
from tasks.task import TaskType
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image
from tasks.vision.request import ImageItem
from tests.support.data.images import rectangle
from tests.support.models.model_folders import write_and_load

CLASSIFY, DETECT = TaskType.IMAGE_CLASSIFICATION, TaskType.OBJECT_DETECTION
ORIENTED, SEGMENT = TaskType.ORIENTED_OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION
ITEM = ImageItem(Image(np.zeros((100, 200, 3), np.uint8)), SelectionParameters())
BOXES = np.array([[10, 20, 30, 40], [1, 2, 3, 4]], np.float32)
SCORES, NUMBERS, NAMES = np.array([0.5, 0.25], np.float32), np.array([1, 0]), np.array(["bus", "car"])
CORNERS = np.array([[[40, 40], [80, 40], [80, 60], [40, 60]]])
POSES = np.array([[[1, 2, 1]], [[3, 4, 0]]])
MASK = np.zeros((1, 100, 200), bool)
MASK[0, 10:20, 30:50] = True

CODE = """
    import numpy as np
    class Detections:
        def __init__(self, **fields):
            self.__dict__.update({"mask": None, "confidence": None, "class_id": None, "data": {}, **fields})
    class Model:
        labels = ["car", "bus"]
        def predict(self, images):
            box = np.array([[10, 8, 30, 40]])
            return [Detections(xyxy=box, confidence=np.array([0.5]), class_id=np.array([1])) for _ in images]
"""


def detections(**fields: Any) -> SimpleNamespace:
    return SimpleNamespace(**{"mask": None, "confidence": None, "class_id": None, "data": {}, **fields})


def read(answer: object, task_type: TaskType) -> Any:
    for library in LIBRARIES:
        answer = library.answer(answer, "predict()", task_type)
    return TASK_ADAPTERS[task_type].parse(answer, "predict()", ITEM, ClassNames(("car", "bus")))


def test_detections_of_a_class_are_served(tmp_path: Path) -> None:
    model = write_and_load(tmp_path / "m", CODE, task_type="OBJECT_DETECTION")
    (found,) = msgspec.to_builtins(model.ask(rectangle()))
    assert found == {"label": "bus", "score": 0.5, "xmin": 10, "ymin": 8, "xmax": 30, "ymax": 40}


@pytest.mark.parametrize("classes", [{"class_id": NUMBERS}, {"class_id": NUMBERS[::-1], "data": {"class_name": NAMES}}])
def test_class_names_precede_class_numbers(classes: dict[str, Any]) -> None:
    found = read(detections(xyxy=BOXES, confidence=SCORES, **classes), DETECT)
    assert (found.labels, found.scores.tolist(), found.boxes.tolist()) == (["bus", "car"], [0.5, 0.25], BOXES.tolist())


def test_keypoints_are_read_from_data() -> None:
    answer = detections(xyxy=BOXES, confidence=SCORES, class_id=NUMBERS, data={"keypoints": POSES})
    assert read(answer, DETECT).keypoints.tolist() == POSES.tolist()


def test_corners_are_read_from_data() -> None:
    answer = detections(
        xyxy=np.array([[40, 40, 80, 60]]), confidence=SCORES[:1], class_id=NUMBERS[:1], data={"xyxyxyxy": CORNERS}
    )
    assert read(answer, ORIENTED).boxes[0].tolist() == pytest.approx([60, 50, 40, 20, 0])


def test_masks_become_contours() -> None:
    found = read(detections(xyxy=BOXES[:1], mask=MASK, confidence=SCORES[:1], class_id=NUMBERS[:1]), SEGMENT)
    assert (found.labels, len(found.contours)) == (["bus"], 1)


def test_classifications_are_read() -> None:
    found = read(SimpleNamespace(class_id=NUMBERS, confidence=SCORES), CLASSIFY)
    assert (found.labels, found.scores.tolist(), found.class_ids) == (["bus", "car"], [0.5, 0.25], [1, 0])


@pytest.mark.parametrize("task_type", [DETECT, ORIENTED, SEGMENT])
@pytest.mark.parametrize("confidence", [None, np.zeros(0)])
def test_empty_detections_are_read(task_type: TaskType, confidence: object) -> None:
    empty = detections(xyxy=np.zeros((0, 4)), confidence=confidence, class_id=np.zeros(0, np.int64))
    assert read(empty, task_type).labels == []


@pytest.mark.parametrize(
    ("fields", "task_type", "message"),
    [
        ({"class_id": NUMBERS}, DETECT, r'"scores".*Expected numbers'),
        ({"confidence": SCORES}, DETECT, r'"labels".*Expected a list of class names'),
        ({"confidence": SCORES, "class_id": NUMBERS}, ORIENTED, "got 0 boxes, 2 scores, 2 labels"),
        ({"confidence": SCORES, "class_id": NUMBERS}, SEGMENT, r'"masks".*Expected a list or an array, got None'),
    ],
)
def test_missing_field_is_an_error(fields: dict[str, Any], task_type: TaskType, message: str) -> None:
    with pytest.raises(InferenceError, match=message):
        read(detections(xyxy=BOXES, **fields), task_type)


def results(**parts: Any) -> SimpleNamespace:
    """Return a result with the attributes of Ultralytics' class, of an image of 100 x 200 pixels."""
    absent = dict.fromkeys(("boxes", "masks", "probs", "keypoints", "obb"))
    return SimpleNamespace(**{**absent, "names": {0: "car", 1: "bus"}, "orig_shape": (100, 200), **parts})


FOUND = {"conf": SCORES, "cls": NUMBERS.astype(np.float32)}
BOXED = results(boxes=SimpleNamespace(**FOUND, xyxy=BOXES), keypoints=SimpleNamespace(data=POSES))


def test_ultralytics_boxes_keypoints_and_probabilities_are_read() -> None:
    for answer in (BOXED, [BOXED]):
        found = read(answer, DETECT)
        assert (found.labels, found.scores.tolist(), found.boxes.tolist()) == (
            ["bus", "car"],
            [0.5, 0.25],
            BOXES.tolist(),
        )
        assert found.keypoints.tolist() == POSES.tolist()
    probabilities = read(results(probs=SimpleNamespace(data=np.array([0.25, 0.75]))), CLASSIFY)
    assert (probabilities.labels, probabilities.scores.tolist(), probabilities.class_ids) == (
        ["car", "bus"],
        [0.25, 0.75],
        [0, 1],
    )
    oriented = read(results(obb=SimpleNamespace(**FOUND, xywhr=np.array([[60, 50, 40, 20, 0.5]] * 2))), ORIENTED)
    assert oriented.boxes[1].tolist() == [60, 50, 40, 20, 0.5]


POLYGON = np.array([[30, 10], [49, 10], [49, 19], [30, 19]], np.float32)


@pytest.mark.parametrize(
    ("masks", "points"),
    [
        (SimpleNamespace(data=np.ones((2, 64, 64)), xy=[POLYGON, POLYGON[:0]]), 4),
        (SimpleNamespace(data=np.concatenate([MASK, MASK * 0])), 4),
        (None, 0),
    ],
    ids=["smaller masks", "masks of the image's size", "no objects"],
)
def test_ultralytics_masks_are_read(masks: Any, points: int) -> None:
    boxes = {"conf": SCORES, "cls": NUMBERS} if masks else {"conf": np.zeros(0), "cls": np.zeros(0)}
    found = read(results(boxes=SimpleNamespace(**boxes), masks=masks), SEGMENT)
    assert [sum(map(len, contours)) for contours in found.contours] == ([points, 0] if masks else [])
    if masks:
        assert sorted(found.contours[0][0].tolist()) == sorted(POLYGON.tolist())


def test_ultralytics_result_of_another_task_is_an_error() -> None:
    with pytest.raises(
        InferenceError, match="a result with obb for ORIENTED_OBJECT_DETECTION, got one with boxes, keyp"
    ):
        read(BOXED, ORIENTED)
