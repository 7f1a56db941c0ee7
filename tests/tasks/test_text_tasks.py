"""Postprocessing of the text tasks."""

import numpy as np
import pytest

from tasks.inference.tensor import Datatype
from tasks.task import TextChunk, TokenUsage
from tasks.text.request import TextItem
from tasks.text_generation import ContinuedText, GeneratedText, Generation, TextGeneration, TextGenerationParameters
from tasks.token_classification import Entities, Entity, TaggedText, TokenClassification, TokenParameters

ITEM = TextItem("abc", "inputs[0].data[0]")
ENTITIES = Entities(
    labels=["A", "B", "A"],
    scores=np.array([0.3, 0.9, 0.6], np.float32),
    words=["x", "y", "z"],
    spans=np.array([[0, 1], [2, 3], [4, 6]], np.int32),
)


def generation_input(text: str, **parameters: object) -> ContinuedText:
    return ContinuedText(TextItem(text, "inputs[0].data[0]"), TextGenerationParameters(**parameters))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (TokenParameters(), ["x", "y", "z"]),
        (TokenParameters(score_threshold=0.5), ["y", "z"]),
        (TokenParameters(labels=("A",)), ["x", "z"]),
        (TokenParameters(top_k=2), ["y", "z"]),
    ],
)
def test_filtered_entities_keep_the_order_of_the_text(parameters: TokenParameters, words: list[str]) -> None:
    refined = TokenClassification().postprocess(TaggedText(ITEM, parameters), ENTITIES)
    assert [record.word for record in refined.records()] == words


def test_entities_are_rendered_and_stacked() -> None:
    assert ENTITIES.records()[1] == Entity("B", 0.9, "y", 2, 3)
    none = Entities(labels=[], scores=np.zeros(0, np.float32), words=[], spans=np.zeros((0, 2), np.int32))
    tensors = {tensor.name: tensor for tensor in Entities.stack([ENTITIES, none])}
    assert list(tensors) == [spec.name for spec in TokenClassification.outputs]
    assert tensors["num_entities"].data.tolist() == [3, 0]
    assert tensors["spans"].datatype is Datatype.INT32
    assert tensors["spans"].data.tolist() == [[[0, 1], [2, 3], [4, 6]], [[0, 0]] * 3]
    assert tensors["words"].data.tolist() == [[b"x", b"y", b"z"], [b""] * 3]


def test_generation_may_include_the_full_text() -> None:
    task = TextGeneration()
    assert task.postprocess(generation_input("one"), Generation(" two")).records() == [GeneratedText(" two")]
    assert task.postprocess(generation_input("one", return_full_text=True), Generation(" two")).records() == [
        GeneratedText("one two")
    ]
    (tensor,) = Generation.stack([Generation("é"), Generation("")])
    assert (tensor.name, tensor.data.tolist()) == ("generated_text", ["é".encode(), b""])


def test_model_without_streaming_yields_each_generation_with_its_usage_at_once() -> None:
    usage, items = TokenUsage(3, 2), [generation_input("one", return_full_text=True), generation_input("two")]
    generation = Generation(" two", usage=usage, finish="length")
    assert list(TextGeneration().stream(items, lambda _: [generation])) == [
        TextChunk(item=0, text="one"),
        TextChunk(item=0, text=" two", final=True, usage=usage, finish="length"),
        TextChunk(item=1, text=" two", final=True, usage=usage, finish="length"),
    ]


def test_cut_generation_keeps_its_usage_and_ends_with_stop() -> None:
    usage = TokenUsage(3, 4)
    whole = Generation("one two", usage=usage, finish="length")
    task = TextGeneration()
    assert task.postprocess(generation_input("zero"), whole).chunks()[0].finish == "length"
    (cut,) = task.postprocess(generation_input("zero", stop=[" two"]), whole).chunks()
    assert (cut.text, cut.usage, cut.finish) == ("one", usage, "stop")
