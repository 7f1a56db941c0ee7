"""Predictions as records and as padded tensors, and the postprocessing of texts."""

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
from tasks.task import TextChunk, TokenUsage
from tasks.text.request import TextItem
from tasks.text_generation import ContinuedText, GeneratedText, Generation, TextGeneration, TextGenerationParameters
from tasks.token_classification import Entities, Entity, TaggedText, TokenClassification, TokenParameters

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
