"""Rows of different lengths as padded tensors."""

import numpy as np

from tasks.exchange.stacking import counts, stacked_numbers, stacked_text
from tasks.exchange.tensor import Datatype
from tasks.object_detection import Detections

ROWS = [np.array([1, 2], np.float32), np.array([], np.float32), np.array([3, 4, 5], np.float32)]


def test_counts() -> None:
    tensor = counts("n", [each.tolist() for each in ROWS])
    assert (tensor.name, tensor.datatype, tensor.data.dtype) == ("n", Datatype.INT32, np.int32)
    assert tensor.data.tolist() == [2, 0, 3]
    assert counts("n", []).shape == (0,)


def test_numbers_are_padded_with_zeros() -> None:
    tensor = stacked_numbers("s", ROWS)
    assert (tensor.datatype, tensor.data.dtype) == (Datatype.FP32, np.float32)
    assert tensor.data.tolist() == [[1, 2, 0], [0, 0, 0], [3, 4, 5]]


def test_rows_of_more_dimensions() -> None:
    boxes = [np.zeros((0, 4), np.float32), np.arange(8, dtype=np.float32).reshape(2, 4)]
    tensor = stacked_numbers("boxes", boxes)
    assert tensor.shape == (2, 2, 4)
    assert tensor.data[0].tolist() == [[0] * 4] * 2
    assert tensor.data[1].tolist() == boxes[1].tolist()
    assert stacked_numbers("boxes", boxes[:1]).shape == (1, 0, 4)
    assert stacked_numbers("boxes", []).shape == (0, 0)


def test_texts_are_padded_with_nothing() -> None:
    tensor = stacked_text("labels", [["a", "Ö"], [], ["c"]])
    assert tensor.datatype is Datatype.BYTES
    assert tensor.data.tolist() == [[b"a", "Ö".encode()], [b"", b""], [b"c", b""]]
    assert stacked_text("labels", [[], []]).shape == (2, 0)


def test_the_tensors_of_detections_hold_the_numbers_of_their_records() -> None:
    found = [
        Detections(
            labels=["a", "b"],
            scores=np.array([0.75, 0.5], np.float32),
            boxes=np.array([[0, 1, 2, 3], [4, 5, 6, 7]], np.float32),
        ),
        Detections(labels=[], scores=np.zeros(0, np.float32), boxes=np.zeros((0, 4), np.float32)),
    ]
    tensors = {each.name: each.data for each in Detections.stack(found)}
    assert tensors["num_detections"].tolist() == [2, 0]
    for place, record in enumerate(found[0].records()):
        assert tensors["labels"][0, place].decode() == record.label
        assert tensors["scores"][0, place] == record.score
        assert tensors["boxes"][0, place].tolist() == [record.xmin, record.ymin, record.xmax, record.ymax]
