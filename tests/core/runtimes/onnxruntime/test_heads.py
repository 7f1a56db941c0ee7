"""The head of a layout binds its graph to a task."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from app.core.runtimes.onnxruntime.heads import task_and_model
from app.core.runtimes.onnxruntime.layouts.layout import Bound
from tasks.image_classification import ImageClassification
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import inspected


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
