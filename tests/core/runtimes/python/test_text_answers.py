"""Test the accepted return values for texts and tensors."""

from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.runtimes.python.outputs.tensor import read_tensors
from app.core.runtimes.python.outputs.text import read_answers, read_generation
from app.core.runtimes.python.outputs.value_parsing import ClassNames
from app.core.runtimes.python.task_adapters import task_adapter
from tasks.image_text_to_text import Answers, GenerationParameters, PromptedImage
from tasks.inference.error import InferenceError
from tasks.inference.tensor import Datatype, TensorSpec
from tasks.task import TokenUsage
from tasks.text_generation import ContinuedText, Generation, TextGenerationParameters
from tasks.vision.image import Image
from tests.support.rejection import rejects_answer

F32 = np.float32
LABELS = ClassNames(())
IMAGE = Image(np.zeros((30, 40, 3), np.uint8))
TEXT = ContinuedText("a", "", TextGenerationParameters())
ANSWERS = Answers(prompts=["what?", "why?"], answers=["a cat", "because"])
PROMPTED_IMAGE = PromptedImage((IMAGE,), ["what?", "why?"], GenerationParameters())


@pytest.mark.parametrize(
    "answer",
    [
        ["a cat", "because"],
        ("a cat", "because"),
        [{"prompt": "what?", "answer": "a cat"}, {"prompt": "why?", "answer": "because"}],
        ANSWERS,
        ANSWERS.records(),
    ],
)
def test_texts_are_read_in_every_accepted_form(answer: object) -> None:
    found = read_answers(answer, "predict()", PROMPTED_IMAGE, LABELS)
    assert (found.prompts, found.answers) == (["what?", "why?"], ["a cat", "because"])


@pytest.mark.parametrize(
    ("name", "value", "error_text"),
    [("usage", TokenUsage(3, 2), "TokenUsage"), ("finish", "length", "'stop' or 'length' for each prompt")],
)
def test_usage_and_finish_of_the_model_are_kept(name: str, value: Any, error_text: str) -> None:
    assert getattr(read_generation(Generation("b", **{name: value}), "predict()", TEXT, LABELS), name) == value
    both, one = (msgspec.structs.replace(ANSWERS, **{name: [value] * count}) for count in (2, 1))
    assert getattr(read_answers(both, "predict()", PROMPTED_IMAGE, LABELS), name) == [value, value]
    with pytest.raises(InferenceError, match=rf"predict\(\).{name}: Expected {error_text}"):
        read_answers(one, "predict()", PROMPTED_IMAGE, LABELS)


@pytest.mark.parametrize(("task_type", "item"), [("TEXT_GENERATION", TEXT), ("IMAGE_TEXT_TO_TEXT", PROMPTED_IMAGE)])
def test_schema_is_rejected_unless_the_class_declares_to_follow_it(task_type: str, item: Any) -> None:
    held = msgspec.structs.replace(item, parameters=msgspec.structs.replace(item.parameters, json_schema={}))
    adapter = task_adapter(task_type, object())
    assert adapter.arguments(item)["parameters"] is item.parameters
    with pytest.raises(InferenceError, match="cannot hold its answers to one") as caught:
        adapter.arguments(held)
    assert caught.value.path == "json_schema"
    writer = SimpleNamespace(json_schema=True)
    assert task_adapter(task_type, writer).arguments(held)["parameters"] is held.parameters


def test_single_text_answers_single_prompt() -> None:
    item = PromptedImage((IMAGE,), ["what?"], GenerationParameters())
    assert read_answers("a cat", "predict()", item, LABELS).answers == ["a cat"]


@pytest.mark.parametrize(
    ("answer", "error_text"),
    [
        ("a cat", "predict(): Expected a list of 2 answers, one for each prompt, got 'a cat'"),
        (["a cat"], "got a list of 1"),
        (None, "got None"),
        (["a cat", 3], "predict()[1]: Expected a text, got 3"),
        (np.zeros((2, 2)), "predict()[0]: Expected a text, or a record with prompt and answer, got an array of shape"),
        ([1, 2], "predict()[0]: Expected a text, or a record with prompt and answer, got 1"),
        ([{"answer": "a cat"}, {"answer": "because"}], "predict()[0]: Expected the fields prompt, answer"),
    ],
)
def test_error_names_invalid_text(answer: object, error_text: str) -> None:
    with rejects_answer(error_text):
        read_answers(answer, "predict()", PROMPTED_IMAGE, LABELS)


SPECS = [
    TensorSpec(name="y", datatype=Datatype.FP32, shape=(-1, 2)),
    TensorSpec(name="n", datatype=Datatype.INT32, shape=()),
    TensorSpec(name="s", datatype=Datatype.BYTES, shape=(-1,)),
]


@pytest.mark.parametrize(
    "answer",
    [
        {"y": np.array([[1, 2]], F32), "n": np.int32(3), "s": np.array([b"a", b"b"], object)},
        {"y": [[1.0, 2.0]], "n": 3, "s": ["a", "b"]},
        {"y": [[1, 2]], "n": np.array(3), "s": np.array(["a", "b"])},
    ],
)
def test_tensors_get_declared_datatype(answer: object) -> None:
    y, n, s = read_tensors(answer, "predict()", SPECS).tensors
    assert (y.data.dtype, y.data.tolist()) == (np.float32, [[1, 2]])
    assert (n.data.dtype, n.data.tolist()) == (np.int32, 3)
    assert s.data.tolist() == [b"a", b"b"]


@pytest.mark.parametrize("elements", [[b"a\0", b"\xff\0\0"], [b"\xff", "é\0"], ["a\0", b"", b"\0"]])
def test_bytes_of_a_list_are_returned_unchanged(elements: list[str | bytes]) -> None:
    (tensor,) = read_tensors({"s": elements}, "predict()", SPECS[2:]).tensors
    assert tensor.data.tolist() == [element.encode() if isinstance(element, str) else element for element in elements]


@pytest.mark.parametrize(
    ("changes", "error_text"),
    [
        ([1], "predict(): Expected a dict of the arrays 'y', 'n', 's', got a list of 1"),
        ({"y": [1, 2]}, 'predict()["y"]: Expected the shape [-1, 2], got [2]'),
        ({"y": [["a", "b"]]}, 'predict()["y"]: Expected FP32 or values that it can represent'),
        ({"n": 2**40}, 'predict()["n"]: Expected INT32 or values that it can represent, got int64'),
        ({"n": 1.5}, 'predict()["n"]: Expected INT32 or values that it can represent, got float64'),
        ({"y": [[1, 2], [3]]}, 'predict()["y"]: Expected an array'),
        ({"n": 2**70}, 'predict()["n"]: Expected INT32'),
        ({"s": ["\ud800"]}, 'predict()["s"]: Expected a text'),
        ({"y": [[2**24 + 1, 0]]}, 'predict()["y"]: Expected FP32 or values that it can represent, got int64'),
        ({"s": ["a", 1]}, 'predict()["s"]: Expected texts or bytes, got 1'),
        ({"z": 1}, "Expected a dict of the arrays 'y', 'n', 's', got a dict with the keys 'y', 'n', 's', 'z'"),
    ],
)
def test_error_names_invalid_tensor(changes: dict[str, object] | list[object], error_text: str) -> None:
    answer = changes if isinstance(changes, list) else {"y": [[1, 2]], "n": 3, "s": ["a"], **changes}
    with rejects_answer(error_text):
        read_tensors(answer, "predict()", SPECS)


def test_generated_text_must_be_string() -> None:
    assert read_generation("b", "predict()", TEXT, LABELS).text == "b"
    with pytest.raises(InferenceError, match=r"predict\(\): Expected a text, got 3"):
        read_generation(3, "predict()", TEXT, LABELS)
