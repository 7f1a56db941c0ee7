"""Predictions as records and as padded tensors, and the postprocessing of texts."""

from typing import Any

import numpy as np
import pytest

from tasks.image_classification import Classification
from tasks.object_detection import Detections
from tasks.task import TextChunk, TokenUsage
from tasks.text_generation import ContinuedText, GeneratedText, Generation, TextGeneration, TextGenerationParameters


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


def generation_input(text: str, **parameters: object) -> ContinuedText:
    return ContinuedText(text, "inputs[0].data[0]", TextGenerationParameters(**parameters))  # type: ignore[arg-type]


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
