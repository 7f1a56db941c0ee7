"""Test models that read a line of text with CTC."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.settings.model import ModelError
from metadata.model import Fact, Origin
from tasks.image_text_to_text import GenerationParameters, PromptedImage
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import inspected, text_reader, uniform_image


def write(folder: Path, steps: Sequence[int], count: int = 5, characters: str | None = "a\nb\nc", **graph: Any) -> Path:
    output = np.full((1, len(steps), count), 0.1, np.float32)
    output[0, np.arange(len(steps)), list(steps)] = 0.6
    properties = {} if characters is None else {"character": characters}
    options = {"shape": ("b", 3, 48, 320), "properties": properties, **graph}
    return graphs.constant(folder / "model.onnx", {"output0": output}, **options)


def prompted_image(*prompts: str) -> PromptedImage:
    return PromptedImage((uniform_image(20, 60, 0),), prompts, GenerationParameters())


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([0, 1, 0, 2, 0], "ab"),
        ([1, 1, 1, 2, 2], "ab"),
        ([1, 0, 1, 0, 1], "aaa"),
        ([3, 4, 1, 4, 4], "c a "),
        ([0, 0, 0, 0, 0], ""),
        ([2, 2, 0, 2, 3], "bbc"),
    ],
)
def test_repetitions_and_blanks_are_left_out(tmp_path: Path, steps: list[int], text: str) -> None:
    (found,) = text_reader(write(tmp_path, steps))([prompted_image("what?")])
    assert found.answers == [text]


@pytest.mark.parametrize(
    ("characters", "count", "settings", "text"),
    [
        ("a\nb\nc", 5, {}, "abc"),  # a space is appended
        ("a\nb\nc\n ", 5, {}, "abc"),  # the space is in the file
        ("a\nb\nc\n", 5, {}, "abc"),
        ("a\r\nb\r\nc", 5, {}, "abc"),
        ("a\nb\nc", 4, {}, "abc"),  # the output has no slot for a space
        ("a\n\u2028\nb", 5, {}, "a\u2028b"),
        (None, 4, {"task_type": "IMAGE_TEXT_TO_TEXT", "labels": ["x", "y", "z"]}, "xyz"),
        (None, 5, {"layout": "ctc", "labels": ["w", "x", "y"], "ctc": {"blank": "last"}}, "xy "),
    ],
)
def test_characters_come_from_the_file_or_the_settings(
    tmp_path: Path, characters: str | None, count: int, settings: dict[str, Any], text: str
) -> None:
    (found,) = text_reader(write(tmp_path, [1, 2, 3], count, characters), **settings)([prompted_image("?")])
    assert found.answers == [text]


@pytest.mark.parametrize(
    ("ctc", "axes", "steps", "text"),
    [
        ({"time_axis": 2}, (0, 2, 1), [0, 1, 1, 0, 1, 3], "xxz"),
        ({"time_axis": 0}, (1, 0, 2), [0, 1, 1, 0, 1, 3], "xxz"),
        ({"blank": "last"}, (0, 1, 2), [0, 0, 3, 0, 2, 1], "xxzy"),
        ({"time_axis": 0, "blank": "last"}, (1, 0, 2), [3, 0, 0, 3, 2, 3], "xz"),
    ],
)
def test_axis_of_steps_and_place_of_blank_can_be_declared(
    tmp_path: Path, ctc: dict[str, Any], axes: tuple[int, ...], steps: list[int], text: str
) -> None:
    output = np.full((1, len(steps), 4), 0.1, np.float32)
    output[0, np.arange(len(steps)), steps] = 0.6
    file = graphs.constant(tmp_path / "model.onnx", {"output0": output.transpose(axes)}, shape=(1, 3, 32, 100))
    if axes[0] == 1:
        # `constant` adds the mean of an image to the first dimension, the batch.
        model = graphs.read_model(file)
        model.graph.output[0].type.tensor_type.shape.dim[0].dim_value = len(steps)
        graphs.write_model(model, file)
    settings = {"layout": "ctc", "labels": ["x", "y", "z"], "ctc": ctc}
    found = text_reader(file, **settings)([prompted_image("?"), prompted_image("?")])
    assert [prediction.answers for prediction in found] == [[text], [text]]
    facts = {fact.topic: fact.value for fact in inspected(graphs.source(file, **settings)).description.facts}
    assert facts["ctc"] == f"steps on axis {ctc.get('time_axis', 1)}, blank {ctc.get('blank', 'first')}"


def test_steps_of_several_images_on_the_first_axis_are_rejected(tmp_path: Path) -> None:
    file = graphs.constant(tmp_path / "model.onnx", {"output0": np.ones((1, 2, 4), np.float32)}, shape=(1, 3, 32, 100))
    with pytest.raises(ModelError, match=r"which its outputs .* do not have"):
        inspected(graphs.source(file, layout="ctc", labels=["x", "y", "z"], ctc={"time_axis": 0}))


def test_every_prompt_has_the_same_answer(tmp_path: Path) -> None:
    found = text_reader(write(tmp_path, [1, 2]))([prompted_image("one", "two"), prompted_image("three")])
    assert [(list(prediction.prompts), list(prediction.answers)) for prediction in found] == [
        (["one", "two"], ["ab", "ab"]),
        (["three"], ["ab"]),
    ]


@pytest.mark.parametrize("shape", [("b", 3, 48, "w"), ("b", 3, "h", "w"), (2, 3, 48, "w")])
def test_text_lines_keep_aspect_ratio_if_graph_allows_any_width(tmp_path: Path, shape: Any) -> None:
    found = inspected(graphs.source(write(tmp_path, [1], shape=shape)))
    facts = {fact.topic: fact for fact in found.description.facts}
    assert facts["size of each image"].value == "height 48, width that of the image, 320 to 3200"
    assert facts["characters"] == Fact("characters", "5", Origin.MODEL_FILE)
    lines = [uniform_image(24, 100, 0), uniform_image(24, 1000, 0), uniform_image(10, 5000, 0)]
    answers = [answer for line in lines for answer in found.graph.run([line])]
    assert [(answer.height, answer.width) for answer in answers] == [(48, 320), (48, 2000), (48, 3200)]
    # The first line is 200 columns wide, and the rest of its 320 is padding to its right.
    assert (answers[0].placement.scale_x, answers[0].placement.offset_x) == (2, 0)
