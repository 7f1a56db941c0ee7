"""Test the accepted return values for scores and masks."""

import math
from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from app.core.runtimes.python.outputs.image_objects import read_segments
from app.core.runtimes.python.outputs.labelled_scores import read_classification
from app.core.runtimes.python.outputs.value_parsing import ClassNames
from tasks.image_classification import Classification, ClassificationInput, LabelledScore
from tasks.image_segmentation import SegmentationInput, SegmentationParameters, Segments
from tasks.inference.error import InferenceError
from tasks.vision.contours import contours_of_mask, mask_of_contours
from tasks.vision.filtering import SelectionParameters
from tasks.vision.image import Image
from tests.support.rejection import rejects_answer

F32 = np.float32
LABELS = ClassNames(("background", "cat", "dog"))
IMAGE = Image(np.zeros((30, 40, 3), np.uint8))
CLASSIFICATION_INPUT = ClassificationInput(IMAGE, SelectionParameters())
SEGMENTATION_INPUT = SegmentationInput(IMAGE, SegmentationParameters())


@pytest.mark.parametrize(
    "answer",
    [
        [0.25, 0, 0.75],
        np.array([0.25, 0, 0.75]),
        np.array([0.25, 0, 0.75], np.float16),
        {"background": 0.25, "cat": 0, "dog": 0.75},
        {0: 0.25, 1: 0.0, 2: 0.75},
        [{"label": "background", "score": 0.25}, {"label": 1, "score": 0}, {"label": "dog", "score": 0.75}],
        [LabelledScore("background", 0.25), LabelledScore("cat", 0), LabelledScore("dog", 0.75)],
        {"labels": ["background", "cat", "dog"], "scores": [0.25, 0, 0.75]},
        {"labels": np.array([0, 1, 2]), "scores": np.array([0.25, 0, 0.75])},
        Classification(labels=["background", "cat", "dog"], scores=np.array([0.25, 0, 0.75], F32)),
    ],
)
def test_scores_are_read_in_every_accepted_form(answer: object) -> None:
    found = read_classification(answer, "predict()", CLASSIFICATION_INPUT, LABELS)
    assert found.labels == ["background", "cat", "dog"]
    assert found.scores.tolist() == [0.25, 0, 0.75]
    assert list(found.class_ids or (0, 1, 2)) == [0, 1, 2]


@pytest.mark.parametrize(
    ("answer", "known", "labels", "class_ids"),
    [
        ({"dog": 0.75, "cat": 0.25}, ("background", "cat", "dog"), ["dog", "cat"], [2, 1]),
        ({"dog": 0.75, "cow": 0.25}, ("background", "cat", "dog"), ["dog", "cow"], None),
        ([0.25, 0.5, 0.75], ("crane", "cat", "crane"), ["crane", "cat", "crane"], None),
        ([0.5, 0.25], (), ["0", "1"], None),
    ],
    ids=["another order", "unknown name", "equal names", "no names"],
)
def test_classes_are_numbered_if_all_names_are_known(answer: object, known: Any, labels: Any, class_ids: Any) -> None:
    found = read_classification(answer, "predict()", CLASSIFICATION_INPUT, ClassNames(known))
    assert (found.labels, found.class_ids) == (labels, class_ids)


@pytest.mark.parametrize(
    ("answer", "error_text"),
    [
        (None, "predict(): Expected Classification, a dict of scores by label"),
        (np.array(0.5), "got an array of shape ()"),
        ([0.5, 0.5], "predict(): Expected numbers of shape (3,), got shape (2,)"),
        ([3.2, -1.0, 0], "predict()[0]: Expected a score of 0..1, got 3.2"),
        ({"cat": "high"}, "predict(): Expected numbers"),
        ({"cat": 0.5, "dog": math.inf}, "predict()['dog']: Expected finite numbers"),
        ({5: 0.5}, "Expected one of 3 classes"),
        ({"cat" * 1000: 2.0}, "...]: Expected a score of 0..1, got 2"),
        ({(0,) * 1000: 0.5}, "...: Expected the name or the number of a class"),
        ({"labels": ["cat"], "scores": [0.5, 0.5]}, "equal numbers of scores and labels, got 2 scores, 1 labels"),
        (Classification(labels=["cat", "dog"], scores=np.array([0.5], F32)), "got 1 scores, 2 labels"),
    ],
)
def test_error_names_invalid_score(answer: object, error_text: str) -> None:
    with rejects_answer(error_text):
        read_classification(answer, "predict()", CLASSIFICATION_INPUT, LABELS)


@pytest.mark.parametrize("class_ids", [[1], [0, 1, 2], ["x", "y"], [2**31, 0], [-1, 0], [0.5, 1], 7])
def test_class_numbers_that_do_not_fit_are_rejected(class_ids: Any) -> None:
    answer = Classification(labels=["cat", "dog"], scores=np.array([0.5, 0.5], F32), class_ids=class_ids)
    with pytest.raises(InferenceError, match=r"predict\(\)\.class_ids: Expected the numbers of 2 classes"):
        read_classification(answer, "predict()", CLASSIFICATION_INPUT, LABELS)


@pytest.mark.parametrize("class_ids", [[5, 3], np.array([5, 3]), (5, 3)])
def test_class_numbers_of_a_classification_are_kept(class_ids: Any) -> None:
    answer = Classification(labels=["cat", "dog"], scores=np.array([0.5, 0.5], F32), class_ids=class_ids)
    assert read_classification(answer, "predict()", CLASSIFICATION_INPUT, LABELS).class_ids == [5, 3]


HOLED = np.zeros((30, 40), np.bool_)
HOLED[5:25, 10:30], HOLED[10:20, 15:25] = True, False
OUTLINE = contours_of_mask(HOLED.astype(np.uint8))
POINTS = [[{"x": float(x), "y": float(y)} for x, y in contour] for contour in OUTLINE]


@pytest.mark.parametrize(
    "answer",
    [
        {"masks": HOLED[np.newaxis], "scores": [0.5], "labels": [1]},
        {"masks": [HOLED], "scores": [0.5], "labels": ["cat"]},
        {"masks": [HOLED.astype(np.uint8)], "scores": [0.5], "labels": ["cat"]},
        {"masks": [HOLED.astype(np.uint8) * 255], "scores": [0.5], "labels": ["cat"]},
        {"masks": [Pillow.fromarray(HOLED.astype(np.uint8) * 255)], "scores": [0.5], "labels": ["cat"]},
        {"masks": [Pillow.fromarray(HOLED)], "scores": [0.5], "labels": ["cat"]},
        {"masks": HOLED[np.newaxis, np.newaxis], "scores": [0.5], "labels": ["cat"]},
        {"label_map": Pillow.fromarray(HOLED.astype(np.uint8)), "scores": np.full((30, 40), 0.5)},
        {"masks": HOLED[np.newaxis].astype(F32), "scores": np.array([0.5]), "labels": np.array([1])},
        {"masks": [HOLED.tolist()], "scores": [0.5], "labels": ["cat"]},
        {"contours": [OUTLINE], "scores": [0.5], "labels": ["cat"]},
        {"contours": [[contour.tolist() for contour in OUTLINE]], "scores": [0.5], "labels": ["cat"]},
        [{"label": "cat", "score": 0.5, "contour": POINTS}],
        [{"label": 1, "score": 0.5, "contour": OUTLINE}],
        Segments(labels=["cat"], scores=np.array([0.5], F32), contours=[OUTLINE]),
        Segments(labels=["cat"], scores=np.array([0.5], F32), contours=[OUTLINE]).records(),
        {"label_map": HOLED.astype(np.int64), "scores": np.full((30, 40), 0.5)},
    ],
)
def test_masks_are_read_in_every_accepted_form(answer: object) -> None:
    found = read_segments(answer, "predict()", SEGMENTATION_INPUT, LABELS)
    assert (found.labels, found.scores.tolist()) == (["cat"], [0.5])
    assert (mask_of_contours(found.contours[0], 40, 30) == HOLED).all()


@pytest.mark.parametrize(
    "answer",
    [
        [],
        {"masks": np.zeros((0, 30, 40)), "scores": [], "labels": []},
        {"masks": [], "scores": [], "labels": []},
        np.zeros((30, 40), np.int64),
        np.full((30, 40), 255, np.uint8),
        np.full((30, 40), -1),
    ],
)
def test_empty_segmentation_is_read_in_every_accepted_form(answer: object) -> None:
    assert read_segments(answer, "predict()", SEGMENTATION_INPUT, LABELS).labels == []


def test_label_map_gives_one_object_per_class_with_mean_score() -> None:
    classes, scores = np.zeros((30, 40), np.int64), np.zeros((30, 40))
    classes[:10], classes[20:] = 1, 2
    scores[:5], scores[5:10], scores[20:] = 0.5, 1, 0.25
    found = read_segments({"label_map": classes, "scores": scores}, "predict()", SEGMENTATION_INPUT, LABELS)
    assert (found.labels, found.scores.tolist()) == (["cat", "dog"], [0.75, 0.25])
    assert (mask_of_contours(found.contours[1], 40, 30) == (classes == 2)).all()
    assert read_segments(classes, "predict()", SEGMENTATION_INPUT, LABELS).scores.tolist() == [1, 1]
    assert read_segments(classes, "predict()", SEGMENTATION_INPUT, ClassNames(())).labels == ["0", "1", "2"]


def masks(**changes: Any) -> dict[str, Any]:
    return {"masks": [HOLED, HOLED], "scores": [0.5, 0.5], "labels": [1, 2], **changes}


@pytest.mark.parametrize(
    ("answer", "error_text"),
    [
        (None, "predict(): Expected Segments, masks or contours"),
        (masks(masks=[HOLED, HOLED.T]), '["masks"][1]: Expected numbers of shape (30, 40), got shape (40, 30)'),
        (masks(masks=[HOLED * 7, HOLED]), 'predict()["masks"][0]: Expected a mask of booleans, of 0 and 1'),
        (masks(masks=[HOLED * 0.75, HOLED]), "or of 0 and 255, not of probabilities, got numbers up to 0.75"),
        (HOLED.astype(np.uint8) * 255, 'return a mask as {"masks": [mask], '),
        (masks(masks=[HOLED]), "equal numbers of objects, scores and labels, got 1 objects, 2 scores, 2 labels"),
        (masks(masks=4), 'predict()["masks"]: Expected a list or an array, got 4'),
        (np.zeros((40, 30)), "predict(): Expected numbers of shape (30, 40)"),
        (np.full((30, 40), 0.5), "predict(): Expected a map of class numbers"),
        (np.full((30, 40), 3), "predict(): Expected one of 3 classes, 0..2, got 3"),
        ({"label_map": np.ones((30, 40)), "scores": [0.5]}, 'predict()["scores"]: Expected numbers of shape (30, 40)'),
        ({"label_map": np.ones((30, 40)), "scores": np.full((30, 40), 7)}, '["scores"]: Expected scores of 0..1'),
        ({"label_map": np.ones((30, 40)), "scores": np.full((30, 40), np.nan)}, "Expected scores of 0..1"),
        ({"contours": [[[1, 2, 3]]], "scores": [1], "labels": [1]}, 'predict()["contours"][0][0]: Expected numbers'),
        ({"contours": [[[[1, math.nan]]]], "scores": [1], "labels": [1]}, '["contours"][0][0][0]: Expected finite'),
        ({"contours": [5], "scores": [1], "labels": [1]}, 'predict()["contours"][0]: Expected a list'),
        ([{"label": 1, "score": 1, "contour": [[{"x": 1}]]}], "predict()[0].contour[0]: Expected"),
        (
            [{"label": 1, "score": 1, "contour": [[{"x": 1, "y": 1}, {"x": 2}]]}],
            "points with x and y, got at least one",
        ),
    ],
)
def test_error_names_invalid_mask(answer: object, error_text: str) -> None:
    with rejects_answer(error_text):
        read_segments(answer, "predict()", SEGMENTATION_INPUT, LABELS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bfloat16", "float16", "float32", "float64"])
def test_scores_may_be_tensors_of_any_precision(kind: str) -> None:
    import torch

    answer = torch.tensor([0.25, 0.75, 0], dtype=getattr(torch, kind), requires_grad=True)
    assert read_classification(answer, "predict()", CLASSIFICATION_INPUT, LABELS).scores.tolist() == [0.25, 0.75, 0]
