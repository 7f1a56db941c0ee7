"""Test that all accepted forms of boxes give the same result, and that errors name the invalid part."""

import math
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.runtimes.python.outputs.image_objects import read_detections, read_oriented_detections
from app.core.runtimes.python.outputs.value_parsing import ClassNames
from tasks.object_detection import DetectedObject, DetectionInput, DetectionParameters, Detections, PosedObject
from tasks.oriented_object_detection import OrientedDetections, OrientedObject
from tasks.vision.image import Image
from tests.support.rejection import rejects_answer

LABELS = ClassNames(("car", "bus"))
ITEM = DetectionInput(Image(np.zeros((100, 200, 3), np.uint8)), DetectionParameters())
BOXES = [[1, 2, 30, 40], [5, 6, 7, 8]]
SCORES = [0.5, 0.25]
RECORDS = [
    {"label": "bus", "score": 0.5, "xmin": 1, "ymin": 2, "xmax": 30, "ymax": 40},
    {"label": "car", "score": 0.25, "xmin": 5, "ymin": 6, "xmax": 7, "ymax": 8},
]
F32, I64 = np.float32, np.int64


class FakeTensor:
    """Fake the parts of a torch tensor that the reader uses."""

    def __init__(self, values: Any) -> None:
        self._values = np.array(values)
        self.ndim, self.shape = self._values.ndim, self._values.shape

    def detach(self) -> "FakeTensor":
        return self

    def cpu(self) -> Any:
        return self._values

    def __getitem__(self, index: Any) -> Any:
        return self._values[index]

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("wants a gradient")


@pytest.mark.parametrize(
    "answer",
    [
        RECORDS,
        tuple(RECORDS),
        [DetectedObject(**record) for record in RECORDS],
        [{**record, "label": number, "more": 1} for record, number in zip(RECORDS, (1, 0), strict=True)],
        [{**record, "score": F32(record["score"])} for record in RECORDS],
        {"boxes": BOXES, "scores": SCORES, "labels": ["bus", "car"]},
        {"boxes": np.array(BOXES, F32), "scores": np.array(SCORES, F32), "labels": np.array([1, 0])},
        {"boxes": np.array(BOXES), "scores": SCORES, "labels": [1.0, 0.0], "more": None},
        {"boxes": np.array(BOXES), "scores": SCORES, "labels": [np.int64(1), np.array(0)]},
        {"boxes": FakeTensor(BOXES), "scores": FakeTensor(SCORES), "labels": FakeTensor([1, 0])},
        {"boxes": np.array(BOXES, np.float16), "scores": SCORES, "labels": np.array(["bus", "car"])},
        SimpleNamespace(boxes=np.array(BOXES), scores=np.array(SCORES), labels=np.array([1, 0])),
        Detections(labels=["bus", "car"], scores=np.array(SCORES, F32), boxes=np.array(BOXES, F32)),
        {"boxes": [FakeTensor(box) for box in BOXES], "scores": [FakeTensor(0.5), FakeTensor(0.25)], "labels": [1, 0]},
    ],
)
def test_boxes_are_read_in_every_accepted_form(answer: object) -> None:
    found = read_detections(answer, "predict()", ITEM, LABELS)
    assert found.labels == ["bus", "car"]
    assert found.scores.tolist() == SCORES
    assert found.boxes.tolist() == BOXES
    assert found.boxes.dtype == found.scores.dtype == np.float32


POSES = [[[1, 2, 1], [3, 4, 0]], [[5, 6, 0.5], [7, 8, 1]]]


DETECTIONS = Detections(labels=["bus", "car"], scores=np.array(SCORES, F32), boxes=np.array(BOXES, F32))


@pytest.mark.parametrize(
    "answer",
    [
        msgspec.structs.replace(DETECTIONS, keypoints=np.array(POSES, F32)),
        {"boxes": BOXES, "scores": SCORES, "labels": [1, 0], "keypoints": POSES},
        SimpleNamespace(boxes=BOXES, scores=SCORES, labels=[1, 0], keypoints=FakeTensor(POSES)),
        [{**record, "keypoints": pose} for record, pose in zip(RECORDS, POSES, strict=True)],
        [PosedObject(**record, keypoints=pose) for record, pose in zip(RECORDS, POSES, strict=True)],
    ],
)
def test_keypoints_are_read_in_every_accepted_form(answer: object) -> None:
    found = read_detections(answer, "predict()", ITEM, LABELS)
    assert found.keypoints is not None
    assert (found.keypoints.dtype, found.keypoints.tolist()) == (F32, POSES)


def test_keypoints_need_no_visibility() -> None:
    found = read_detections(arrays(keypoints=np.array(POSES)[:, :, :2]), "predict()", ITEM, LABELS)
    assert getattr(found.keypoints, "shape", None) == (2, 2, 2)


@pytest.mark.parametrize(
    "answer",
    [
        {"boxes": BOXES, "scores": SCORES, "labels": [1, 0], "keypoints": None},
        {"boxes": [], "scores": [], "labels": [], "keypoints": np.zeros((0, 17, 3))},
        [{**record, "keypoints": None} for record in RECORDS],
    ],
)
def test_answer_without_keypoints_has_none(answer: object) -> None:
    assert read_detections(answer, "predict()", ITEM, LABELS).keypoints is None


@pytest.mark.parametrize(
    "answer",
    [
        [],
        (),
        {"boxes": [], "scores": [], "labels": []},
        {"boxes": np.zeros((0, 4)), "scores": np.zeros(0), "labels": np.zeros(0, I64)},
        {"boxes": np.zeros((0,)), "scores": np.zeros(0), "labels": []},
    ],
)
def test_empty_answer_is_read_in_every_accepted_form(answer: object) -> None:
    found = read_detections(answer, "predict()", ITEM, LABELS)
    assert (len(found.labels), found.scores.shape, found.boxes.shape) == (0, (0,), (0, 4))


def arrays(**changes: Any) -> dict[str, Any]:
    return {"boxes": BOXES, "scores": SCORES, "labels": [1, 0], **changes}


def records(**changes: Any) -> list[dict[str, Any]]:
    return [RECORDS[0], {**RECORDS[1], **changes}]


@pytest.mark.parametrize(
    ("answer", "error_text"),
    [
        (None, "predict(): Expected Detections, boxes with scores and labels"),
        ({"boxes": BOXES}, "got a dict with the keys 'boxes'"),
        (object(), "got an object of class object"),
        (np.array(BOXES), "got an array of shape (2, 4)"),
        (arrays(boxes=[1, 2, 3]), 'predict()["boxes"]: Expected numbers of shape (N, 4), got shape (3,)'),
        (arrays(boxes=[[1, 2, 3]] * 2), 'predict()["boxes"]: Expected numbers of shape (N, 4), got shape (2, 3)'),
        (arrays(boxes=[[1, 2, 3, 4], [1, 2]]), 'predict()["boxes"]: Expected an array'),
        (arrays(boxes=[["a"] * 4] * 2), 'predict()["boxes"]: Expected numbers of shape (N, 4)'),
        (arrays(boxes=None), 'predict()["boxes"]: Expected numbers'),
        (
            arrays(boxes=BOXES[:1]),
            "Expected equal numbers of boxes, scores and labels, got 1 boxes, 2 scores, 2 labels",
        ),
        (arrays(boxes=[BOXES[0], [7, 6, 5, 8]]), 'predict()["boxes"][1]: Expected left <= right and top <= bottom'),
        (arrays(boxes=[BOXES[0], [5, 6, math.nan, 8]]), 'predict()["boxes"][1]: Expected finite numbers'),
        (arrays(boxes=[[0, 0, 1, 1e300], BOXES[0]]), 'predict()["boxes"][0]: Expected finite numbers'),
        (arrays(scores=[0.5, math.nan]), 'predict()["scores"][1]: Expected finite numbers, got nan'),
        (arrays(scores=[1.5, 0.5]), 'predict()["scores"][0]: Expected a score of 0..1, got 1.5'),
        (arrays(scores=[0.5, -0.5]), 'predict()["scores"][1]: Expected a score of 0..1, got -0.5'),
        (arrays(scores=[[0.5], [0.5]]), 'predict()["scores"]: Expected numbers of shape (N,), got shape (2, 1)'),
        (arrays(labels=[0, 2]), 'predict()["labels"][1]: Expected one of 2 classes, 0..1, got 2'),
        (arrays(labels=[0, -1]), 'predict()["labels"][1]: Expected the name or the number of a class, got -1'),
        (arrays(labels=[0, 0.5]), 'predict()["labels"][1]: Expected the name or the number of a class, got 0.5'),
        (arrays(labels=[0, True]), 'predict()["labels"][1]: Expected the name or the number of a class, got True'),
        (arrays(labels=["a", "\ud800"]), 'predict()["labels"][1]: Expected a text'),
        (arrays(labels=5), 'predict()["labels"]: Expected a list of class names or numbers, got 5'),
        (records(score=math.nan), "predict()[1].score: Expected finite numbers, got nan"),
        (records(label=7), "predict()[1].label: Expected one of 2 classes, 0..1, got 7"),
        (records(xmin=9), "predict()[1]: Expected left <= right"),
        (records(xmax="wide"), "predict()[1].xmax: Expected a number, got 'wide'"),
        (records(xmax=[9]), "predict()[1].xmax: Expected a number, got a list of 1"),
        (records(xmax=10**400), "predict()[1].xmax: Expected a number, got 1000"),
        (records(score=np.array([0.5])), "predict()[1].score: Expected a number, got an array of shape (1,)"),
        ([RECORDS[0], {"label": "car"}], "predict()[1]: Expected the fields label, score, xmin, ymin, xmax, ymax"),
        ([BOXES], "predict()[0]: Expected the fields label"),
        (
            arrays(keypoints=POSES[:1]),
            'predict()["keypoints"]: Expected numbers of shape (2, K, 3), got shape (1, 2, 3)',
        ),
        (arrays(keypoints=[[1, 2]] * 2), 'predict()["keypoints"]: Expected numbers of shape (2, K, 2)'),
        (arrays(keypoints=[[[1, 2, math.nan]]] * 2), 'predict()["keypoints"][0]: Expected finite numbers'),
        (records(keypoints=[[1, 2]]), "predict().keypoints: Expected"),
        (Detections(labels=["a"], scores=np.array(SCORES, F32), boxes=np.array(BOXES, F32)), "2 scores, 1 labels"),
    ],
)
def test_error_names_invalid_part_of_boxes(answer: object, error_text: str) -> None:
    with rejects_answer(error_text):
        read_detections(answer, "predict()", ITEM, LABELS)


def test_classes_without_names_are_labelled_by_number() -> None:
    assert read_detections(arrays(labels=[7, 0]), "predict()", ITEM, ClassNames(())).labels == ["7", "0"]


def test_scores_are_clamped_within_rounding_error() -> None:
    assert read_detections(arrays(scores=[1.00001, -0.00001]), "predict()", ITEM, LABELS).scores.tolist() == [1, 0]


ORIENTED = [[60, 50, 40, 20, 0.5]]
CORNERS = [[[40, 40], [80, 40], [80, 60], [40, 60]]]
FRACTIONS = {"label": "bus", "score": 0.5, "cx": 0.3, "cy": 0.5, "w": 0.2, "h": 0.2, "r": 0.5}


@pytest.mark.parametrize(
    ("answer", "angle"),
    [
        ([FRACTIONS], 0.5),
        ([OrientedObject(**FRACTIONS)], 0.5),
        ({"boxes": ORIENTED, "scores": [0.5], "labels": [1]}, 0.5),
        (SimpleNamespace(boxes=np.array(ORIENTED), scores=np.array([0.5]), labels=["bus"]), 0.5),
        ({"boxes": np.array(CORNERS), "scores": [0.5], "labels": [1]}, 0),
        (
            OrientedDetections(
                labels=["bus"], scores=np.array([0.5], F32), boxes=np.array(ORIENTED, F32), width=200, height=100
            ),
            0.5,
        ),
    ],
)
def test_oriented_boxes_are_read_in_every_accepted_form(answer: object, angle: float) -> None:
    found = read_oriented_detections(answer, "predict()", ITEM, LABELS)
    assert (found.labels, found.scores.tolist(), found.width, found.height) == (["bus"], [0.5], 200, 100)
    assert found.boxes[0].tolist() == pytest.approx([60, 50, 40, 20, angle], abs=1e-4)


@pytest.mark.parametrize("angle", [-3, -0.2, 1.5])
def test_angle_is_computed_from_corners(angle: float) -> None:
    along = np.array([math.cos(angle), math.sin(angle)]) * 20
    across = np.array([-math.sin(angle), math.cos(angle)]) * 10
    corners = np.array([60, 50]) + np.array([-along - across, along - across, along + across, -along + across])
    found = read_oriented_detections(
        {"boxes": corners[np.newaxis], "scores": [0.5], "labels": [1]}, "predict()", ITEM, LABELS
    )
    assert found.boxes[0].tolist() == pytest.approx([60, 50, 40, 20, angle], abs=1e-4)


@pytest.mark.parametrize(
    ("answer", "error_text"),
    [
        ({"boxes": BOXES, "scores": SCORES, "labels": [0, 1]}, 'predict()["boxes"]: Expected numbers of shape (N, 5)'),
        ({"boxes": [[1, 2, -3, 4, 0]], "scores": [1], "labels": [0]}, 'predict()["boxes"][0]: Expected a width'),
        ({"boxes": [[1, 2, 3, 4, math.nan]], "scores": [1], "labels": [0]}, 'predict()["boxes"][0]: Expected finite'),
        ({"boxes": np.zeros((1, 3, 2)), "scores": [1], "labels": [0]}, "Expected numbers of shape (N, 4, 2)"),
        ([RECORDS[0]], "predict()[0]: Expected the fields label, score, cx, cy, w, h, r"),
        (5, "predict(): Expected OrientedDetections"),
    ],
)
def test_error_names_invalid_part_of_oriented_boxes(answer: object, error_text: str) -> None:
    with rejects_answer(error_text):
        read_oriented_detections(answer, "predict()", ITEM, LABELS)
