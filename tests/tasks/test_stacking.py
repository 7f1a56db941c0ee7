"""Rows of different lengths as padded tensors."""

from typing import Any

import numpy as np

from tasks.inference.tensor import Datatype, stack_numbers, stack_text
from tasks.object_detection import Detections

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
