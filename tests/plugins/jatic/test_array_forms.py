"""Python classes may return rows, tuples of arrays, scores (1, C), and a label alone."""

from typing import Any

import numpy as np
import pytest
from PIL import Image as Pillow

from tests.plugins.jatic.test_libraries import BOXES, CLASSIFY, DETECT, MASK, ORIENTED, SEGMENT, read
from tests.support.rejection import rejects_answer

SCORES, NUMBERS = [0.5, 0.25], [1, 0]
ROWS = np.column_stack([BOXES, SCORES, NUMBERS])
ORIENTED_BOX = [60, 50, 40, 20, 0.5]


@pytest.mark.parametrize(
    "answer",
    [
        (BOXES, np.array(SCORES), np.array(NUMBERS)),
        (BOXES.tolist(), SCORES, ["bus", "car"]),
        [BOXES, np.array(SCORES), np.array(NUMBERS)],
        ROWS,
        ROWS.tolist(),
        list(ROWS),
        np.insert(ROWS, 4, [7, 3], axis=1),
        np.insert(ROWS * [1, 1, 1, 1, 2, 1], 4, 0.5, axis=1),
        ROWS[:, [5, 4, 0, 1, 2, 3]],
    ],
    ids=["tuple", "lists", "list of arrays", "rows", "lists", "list of rows", "tracks", "YOLOX", "PaddleDetection"],
)
def test_boxes_are_read_by_their_order(answer: object) -> None:
    found = read(answer, DETECT)
    assert (found.labels, found.scores.tolist(), found.boxes.tolist()) == (["bus", "car"], SCORES, BOXES.tolist())


@pytest.mark.parametrize("answer", [([], [], []), np.zeros((0, 6)), np.array([])])
def test_empty_arrays_are_no_objects(answer: object) -> None:
    assert read(answer, DETECT).labels == []


@pytest.mark.parametrize(
    ("answer", "error_text"),
    [
        ((BOXES, NUMBERS, SCORES), 'predict()["labels"][0]: Expected the name or the number of a class, got 0.5'),
        (ROWS[:, [0, 1, 2, 3, 5, 4]], "predict()[0]: Expected a box, its score and its class number, got"),
        (np.insert(ROWS, 0, 0, axis=1)[:, [0, 1, 2, 3, 4, 6, 5]], "predict()[0]: Expected a box, a track or score"),
        (np.array([[1, 2, 30, 40, 0.5, 7]]), "Expected one of 2 classes, 0..1, got 7"),
        (np.array([[9, 2, 3, 40, 0.5, 1]]), 'predict()["boxes"][0]: Expected left <= right'),
        (ROWS[:, :5], "predict(): Expected Detections, boxes with scores and labels"),
    ],
)
def test_numbers_in_another_order_are_an_error(answer: object, error_text: str) -> None:
    with rejects_answer(error_text):
        read(answer, DETECT)


@pytest.mark.parametrize(
    "answer", [([ORIENTED_BOX], [0.5], [1]), np.array([[*ORIENTED_BOX, 0.5, 1]]), [[*ORIENTED_BOX, 12, 0.5, 1]]]
)
def test_oriented_boxes_are_read_by_their_order(answer: object) -> None:
    found = read(answer, ORIENTED)
    assert (found.labels, found.boxes.tolist()) == (["bus"], [ORIENTED_BOX])


def test_masks_are_read_from_a_tuple_and_label_maps_from_pillow() -> None:
    assert read((MASK, [0.5], [1]), SEGMENT).labels == ["bus"]
    assert read(Pillow.fromarray(MASK[0].astype(np.uint8), "P"), SEGMENT).labels == ["car", "bus"]
    with rejects_answer("predict(): Expected Segments, masks or contours"):
        read(Pillow.new("RGB", (200, 100)), SEGMENT)


@pytest.mark.parametrize(
    ("answer", "labels", "scores"),
    [
        (np.array([[0.25, 0.75]]), ["car", "bus"], [0.25, 0.75]),
        ([[0.25, 0.75]], ["car", "bus"], [0.25, 0.75]),
        ("bus", ["bus"], [1]),
        (np.array(["bike"]), ["bike"], [1]),
        (1, ["bus"], [1]),
        (np.array(1), ["bus"], [1]),
    ],
)
def test_scores_of_one_image_and_a_label_alone_are_read(answer: object, labels: list[str], scores: list[float]) -> None:
    found = read(answer, CLASSIFY)
    assert (found.labels, found.scores.tolist()) == (labels, scores)


@pytest.mark.parametrize(
    ("answer", "error_text"),
    [(1.0, "got 1.0"), (True, "got True"), (7, "one of 2 classes, 0..1, got 7"), ([[0.5] * 3], "got shape (3,)")],
)
def test_number_that_may_be_a_score_is_an_error(answer: Any, error_text: str) -> None:
    with rejects_answer(error_text):
        read(answer, CLASSIFY)
