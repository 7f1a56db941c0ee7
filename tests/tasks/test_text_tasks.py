"""What the tasks of text make of predictions."""

import numpy as np
import pytest

from tasks.exchange.tensor import Datatype
from tasks.image_classification import Classification
from tasks.task import TextPiece
from tasks.text.request import TextItem
from tasks.text_classification import ClassifiedText, TextClassification
from tasks.text_generation import ContinuedText, GeneratedText, Generation, TextGeneration, TextGenerationParameters
from tasks.token_classification import Entities, Entity, TaggedText, TokenClassification, TokenParameters
from tasks.vision.selection import SelectionParameters
from tests.support.stand_ins import go_on

ITEM = TextItem("abc", "inputs[0].data[0]")
FOUND = Entities(
    labels=["A", "B", "A"],
    scores=np.array([0.3, 0.9, 0.6], np.float32),
    words=["x", "y", "z"],
    spans=np.array([[0, 1], [2, 3], [4, 6]], np.int32),
)


def continued(text: str, **parameters: object) -> ContinuedText:
    return ContinuedText(TextItem(text, "inputs[0].data[0]"), TextGenerationParameters(**parameters))  # type: ignore[arg-type]


def test_a_texts_classes_are_narrowed_as_an_images_are() -> None:
    found = Classification(labels=["a", "b", "c"], scores=np.array([0.2, 0.5, 0.3], np.float32))
    item = ClassifiedText(ITEM, SelectionParameters(top_k=2))
    assert [each.label for each in TextClassification().refine(item, found).records()] == ["b", "c"]
    best = ClassifiedText(ITEM, SelectionParameters(action="predict"))
    assert [each.label for each in TextClassification().refine(best, found).records()] == ["b"]


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        (TokenParameters(), ["x", "y", "z"]),
        (TokenParameters(score_threshold=0.5), ["y", "z"]),
        (TokenParameters(labels=("A",)), ["x", "z"]),
        (TokenParameters(top_k=2), ["y", "z"]),
    ],
)
def test_entities_stay_in_the_order_of_the_text(wanted: TokenParameters, words: list[str]) -> None:
    refined = TokenClassification().refine(TaggedText(ITEM, wanted), FOUND)
    assert [each.word for each in refined.records()] == words


def test_entities_are_rendered_and_stacked() -> None:
    assert FOUND.records()[1] == Entity("B", 0.9, "y", 2, 3)
    none = Entities(labels=[], scores=np.zeros(0, np.float32), words=[], spans=np.zeros((0, 2), np.int32))
    tensors = {each.name: each for each in Entities.stack([FOUND, none])}
    assert list(tensors) == [spec.name for spec in TokenClassification.outputs]
    assert tensors["num_entities"].data.tolist() == [3, 0]
    assert tensors["spans"].datatype is Datatype.INT32
    assert tensors["spans"].data.tolist() == [[[0, 1], [2, 3], [4, 6]], [[0, 0]] * 3]
    assert tensors["words"].data.tolist() == [[b"x", b"y", b"z"], [b""] * 3]


def test_a_continuation_comes_alone_or_behind_its_text() -> None:
    task = TextGeneration()
    assert task.refine(continued("one"), Generation(" two")).records() == [GeneratedText(" two")]
    assert task.refine(continued("one", return_full_text=True), Generation(" two")).records() == [
        GeneratedText("one two")
    ]
    (tensor,) = Generation.stack([Generation("é"), Generation("")])
    assert (tensor.name, tensor.data.tolist()) == ("generated_text", ["é".encode(), b""])


def test_a_model_that_cannot_stream_says_each_continuation_at_once() -> None:
    items = [continued("one", return_full_text=True), continued("two")]
    assert list(TextGeneration().stream(items, go_on)) == [
        TextPiece(item=0, text="one"),
        TextPiece(item=0, text="one", final=True),
        TextPiece(item=1, text="two", final=True),
    ]
