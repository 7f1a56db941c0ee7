"""Test class scores with known values: the means of the three channels."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from onnx import TensorProto

from app.core.runtimes.onnxruntime.heads import task_and_model
from app.core.runtimes.onnxruntime.layouts.layout import Bound
from tasks.image_classification import ImageClassification
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import classification_input, classifier, inspected, uniform_image

NAMES = ("red", "green", "blue")
PROPERTIES = graphs.properties("classify", NAMES, (8, 8))


def test_logits_are_normalised(tmp_path: Path) -> None:
    model = classifier(graphs.channel_means(tmp_path / "model.onnx", properties=PROPERTIES), layout="logits")
    (answer,) = model([classification_input(uniform_image(8, 8, 51, 102, 204))])
    powers = np.exp([0.2, 0.4, 0.8])
    assert answer.scores == pytest.approx(powers / powers.sum(), abs=1e-6)


def test_large_logits_do_not_overflow(tmp_path: Path) -> None:
    file = graphs.constant(tmp_path / "model.onnx", {"logits": np.array([[1e4, 0, -1e4]], np.float32)})
    (answer,) = classifier(file)([classification_input(uniform_image(8, 8, 0))])
    assert answer.scores.tolist() == [1, 0, 0]


@pytest.mark.parametrize(
    ("datatype", "scores"),
    [(TensorProto.FLOAT, [0.2, 0.4, 0.8]), (TensorProto.FLOAT16, [0.2, 0.4, 0.8]), (TensorProto.UINT8, [51, 102, 204])],
)
def test_scores_keep_label_order_for_each_input_datatype(tmp_path: Path, datatype: int, scores: list[float]) -> None:
    model = classifier(graphs.channel_means(tmp_path / "model.onnx", properties=PROPERTIES, datatype=datatype))
    (answer,) = model([classification_input(uniform_image(8, 8, 51, 102, 204))])
    assert answer.labels == NAMES
    assert answer.scores == pytest.approx(scores, rel=1e-3)
    assert answer.scores.dtype == np.float32


@pytest.mark.parametrize(("batch", "count"), [("b", 0), ("b", 9), (1, 3), (2, 3), (3, 3), (16, 9)])
def test_answers_keep_order_for_every_batch_size(tmp_path: Path, batch: int | str, count: int) -> None:
    model = classifier(graphs.channel_means(tmp_path / "model.onnx", properties=PROPERTIES, shape=(batch, 3, 8, 8)))
    answers = model(
        [classification_input(uniform_image(10 + index, 30 - index, 25 * index, 0, 255)) for index in range(count)]
    )
    assert [round(float(answer.scores[0]) * 255) for answer in answers] == [25 * index for index in range(count)]


def test_layout_with_its_own_head_is_bound_by_it(tmp_path: Path) -> None:
    file = graphs.constant(tmp_path / "model.onnx", {"scores": np.array([[0.25, 0.75]], np.float32)})
    inspection = inspected(graphs.source(file, labels=["day", "night"]))

    task = ImageClassification(open_vocabulary=True)

    def head(_: Any, __: Any, labels: Any) -> Bound:
        return task, lambda inputs: [labels] * len(inputs), "blank"

    match = msgspec.structs.replace(inspection.match, head=head)
    bound, model, example = task_and_model(msgspec.structs.replace(inspection, match=match))
    assert bound is task
    assert model([example]) == [("day", "night")]
