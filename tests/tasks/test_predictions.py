"""Predictions as records: field names, order, units and digits; and as padded tensors."""

from typing import Any

import msgspec
import numpy as np
import pytest

from tasks.image_classification import Classification
from tasks.image_segmentation import Segments
from tasks.image_text_to_text import Answers
from tasks.inference.tensor import Datatype, stack_numbers, stack_text
from tasks.object_detection import Detections
from tasks.oriented_object_detection import OrientedDetections

CAT: dict[str, Any] = {"labels": ["cat"], "scores": np.array([0.5], np.float32)}
CONTOURS = [[np.array([[1, 2], [3, 4]], np.float32), np.array([[5, 6]], np.float32)]]


@pytest.mark.parametrize(
    ("prediction", "expected"),
    [
        (Classification(**CAT), '{"label":"cat","score":0.5}'),
        (
            Detections(**CAT, boxes=np.array([[7, 50, 17, 77]], np.float32)),
            '{"label":"cat","score":0.5,"xmin":7.0,"ymin":50.0,"xmax":17.0,"ymax":77.0}',
        ),
        (
            # The sides are divided by those of the image, whatever the rotation.
            OrientedDetections(**CAT, boxes=np.array([[50, 25, 20, 10, 1.5]], np.float32), width=200, height=100),
            '{"label":"cat","score":0.5,"cx":0.25,"cy":0.25,"w":0.1,"h":0.1,"r":1.5}',
        ),
        (
            Segments(**CAT, contours=CONTOURS),
            '{"label":"cat","score":0.5,"contour":[[{"x":1.0,"y":2.0},{"x":3.0,"y":4.0}],[{"x":5.0,"y":6.0}]]}',
        ),
        (Answers(prompts=["what?"], answers=["dogs"]), '{"prompt":"what?","answer":"dogs"}'),
    ],
)
def test_record_has_the_fields_of_its_task_in_order(prediction: Any, expected: str) -> None:
    assert msgspec.json.encode(prediction.records()).decode() == f"[{expected}]"


@pytest.mark.parametrize("score", [0.1, 0.3, 0.7, 0.9, 0.999, 1.0, 0.0, 0.1234567])
def test_scores_are_rounded_to_float32_precision(score: float) -> None:
    (record,) = Classification(labels=["a"], scores=np.array([score], np.float32)).records()
    assert record.score == score


@pytest.mark.parametrize("pixel", [0.1, 33.3, 1023.4, 4095.25, 0.0001])
def test_pixels_are_rounded_to_four_digits(pixel: float) -> None:
    boxes = np.array([[0, 0, pixel, 1]], np.float32)
    (record,) = Detections(labels=["a"], scores=np.ones(1, np.float32), boxes=boxes).records()
    assert record.xmax == pytest.approx(pixel, abs=1e-4)
    assert len(str(record.xmax).partition(".")[2]) <= 4


def test_labels_scores_and_boxes_must_have_equal_lengths() -> None:
    with pytest.raises(ValueError):
        Classification(labels=["a"], scores=np.ones(2, np.float32)).records()
    with pytest.raises(ValueError):
        Detections(labels=["a"], scores=np.ones(1, np.float32), boxes=np.ones((2, 4), np.float32)).records()


ROWS = [np.array([1, 2], np.float32), np.array([], np.float32), np.array([3, 4, 5], np.float32)]


def test_numbers_are_padded_with_zeros() -> None:
    tensor = stack_numbers("s", ROWS)
    assert (tensor.datatype, tensor.data.dtype) == (Datatype.FP32, np.float32)
    assert tensor.data.tolist() == [[1, 2, 0], [0, 0, 0], [3, 4, 5]]
    assert stack_numbers("boxes", []).shape == (0, 0)


def test_rows_with_more_dimensions_are_padded() -> None:
    boxes = [np.zeros((0, 4), np.float32), np.arange(8, dtype=np.float32).reshape(2, 4)]
    assert stack_numbers("boxes", boxes).data.tolist() == [[[0] * 4] * 2, boxes[1].tolist()]
    assert stack_numbers("boxes", boxes[:1]).shape == (1, 0, 4)


def test_texts_are_padded_with_empty_strings() -> None:
    tensor = stack_text("labels", [["a", "Ö"], [], ["c"]])
    assert tensor.datatype is Datatype.BYTES
    assert tensor.data.tolist() == [[b"a", "Ö".encode()], [b"", b""], [b"c", b""]]
    assert stack_text("labels", [[], []]).shape == (2, 0)


def test_keypoints_of_some_images_are_padded_with_zeros() -> None:
    def posed(keypoints: np.ndarray[Any, Any] | None) -> Detections:
        count = 0 if keypoints is None else len(keypoints)
        boxes, scores = np.zeros((count, 4), np.float32), np.zeros(count, np.float32)
        return Detections(labels=["a"] * count, scores=scores, boxes=boxes, keypoints=keypoints)

    poses = [None, np.ones((2, 1, 2), np.float32), np.ones((1, 2, 2), np.float32)]
    tensors = {tensor.name: tensor.data for tensor in Detections.stack(list(map(posed, poses)))}
    assert tensors["keypoints"].shape == (3, 2, 2, 2)
    assert tensors["keypoints"].sum(axis=(1, 2, 3)).tolist() == [0, 4, 4]
    assert "keypoints" not in {tensor.name for tensor in Detections.stack([posed(None)])}
