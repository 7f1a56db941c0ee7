"""Test that any return value is either a valid answer or a model failure with a short message."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from app.core.plugins import registry
from app.core.runtimes.python.outputs.value_parsing import ClassNames
from app.core.runtimes.python.task_adapters import TASK_ADAPTERS, task_adapter
from tasks.image_text_to_text import PromptedImage
from tasks.inference.error import ErrorKind, InferenceError
from tasks.task import TaskType
from tasks.text_generation import ContinuedText
from tasks.vision.image import Image
from tasks.vision.request import ImageItem

IMAGE = Image(np.zeros((3, 4, 3), np.uint8))
SPECS = {"inputs": {"x": ("FP32", (-1,))}, "outputs": {"y": ("FP32", (-1,)), "s": ("BYTES", (-1,)), "n": ("INT8", ())}}

FIELDS = [
    *("label", "score", "xmin", "ymin", "xmax", "ymax", "cx", "cy", "w", "h", "r", "contour", "x", "y", "s", "n"),
    *("prompt", "answer"),
    *("boxes", "scores", "labels", "masks", "contours", "label_map"),
]
numbers = st.integers() | st.integers(0, 3) | st.floats() | st.floats(0, 1) | st.booleans()
some_arrays = arrays.arrays(
    st.sampled_from([np.float32, np.int64, np.bool_, np.uint8, np.float16, np.dtype("U3"), object]),
    arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7),
)
leaves = st.none() | numbers | st.text(max_size=4) | st.binary(max_size=3) | some_arrays
boxes = st.fixed_dictionaries(
    {name: st.lists(st.lists(st.floats(-9, 9), min_size=4, max_size=5), max_size=2) for name in ("boxes", "masks")}
    | {"scores": st.lists(st.floats(0, 1), max_size=2), "labels": st.lists(st.integers(0, 2), max_size=2)}
)
answers = st.recursive(
    leaves | boxes,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3) | st.integers(), inner, max_size=8)
        | st.fixed_dictionaries(dict.fromkeys(("label", "score", "xmin", "ymin", "xmax", "ymax"), inner))
    ),
    max_leaves=12,
)


def item_for(task_type: TaskType, parameters: Any) -> Any:
    """Return an input of a model."""
    match task_type.takes:
        case "image":
            return ImageItem(IMAGE, parameters)
        case "question":
            return PromptedImage((IMAGE,), ["a", "b"], parameters)
        case "text":
            return ContinuedText("a text", "", parameters)
        case "tensor":
            return None


@pytest.mark.filterwarnings("error")
@given(answer=answers)
def test_any_answer_is_read_or_rejected(answer: object) -> None:
    for task_type in (*TASK_ADAPTERS, TaskType.TENSOR):
        check_read_or_rejected(task_type, answer)


def check_read_or_rejected(task_type: TaskType, answer: object) -> None:
    adapter = task_adapter(task_type, type("Model", (), SPECS))
    item = item_for(task_type, adapter.task.parameters_type())
    try:
        for library in registry().python_libraries:
            answer = library.answer(answer, "predict()", task_type)
        prediction: Any = adapter.parse(answer, "predict()", item, ClassNames(("a", "b")))
    except InferenceError as error:
        failure = error
    else:
        refined: Any = adapter.task.postprocess(item, prediction)
        msgspec.json.encode(refined.records())
        prediction.stack([refined])
        return
    assert failure.kind is ErrorKind.MODEL_FAILED
    assert str(failure).startswith("The model's answer cannot be used: predict()")
    assert len(str(failure).encode()) < 600
