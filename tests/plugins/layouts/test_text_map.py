"""Test text: bright areas of a map, expanded because training shrank them, and lines that are read with CTC."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from app.core.settings.model import ModelError
from app.plugins.layouts.paddle_ocr import TextPage
from metadata.model import Fact, Origin
from tasks.image_text_to_text import GenerationParameters, PromptedImage
from tasks.oriented_object_detection import OrientedDetections
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import (
    all_close,
    assert_found,
    detection_input,
    inspected,
    oriented_detector,
    text_reader,
    uniform_image,
)

SIZE = 64
OBB: dict[str, Any] = {"task_type": "ORIENTED_OBJECT_DETECTION"}
INPUT = detection_input(uniform_image(SIZE, SIZE, 0))


def write(folder: Path, cells: NDArray[np.float32], **options: Any) -> Path:
    options.setdefault("shape", ("batch", 3, SIZE, SIZE))
    return graphs.constant(folder / "model.onnx", {"maps": cells[np.newaxis, np.newaxis]}, **options)


def found_in(file: Path, height: int = SIZE, width: int = SIZE) -> OrientedDetections:
    (found,) = oriented_detector(file, **OBB)([detection_input(uniform_image(height, width, 0))])
    return found


def dark_map() -> NDArray[np.float32]:
    return np.zeros((SIZE, SIZE), np.float32)


def rectangle(top: int, bottom: int, left: int, right: int, score: float = 1) -> NDArray[np.float32]:
    """Return a dark map with a bright rectangle."""
    cells = dark_map()
    cells[top:bottom, left:right] = score
    return cells


def expanded(width: float, height: float) -> tuple[float, float]:
    """Return the expanded size of a region of cells: area times 1.5 over perimeter is added on each side.

    PaddleOCR measures between the centres of the outermost cells.
    """
    width, height = width - 1, height - 1
    distance = width * height * 1.5 / (2 * (width + height))
    return width + 2 * distance, height + 2 * distance


@pytest.mark.parametrize("batch", ["batch", 1])
@pytest.mark.parametrize(("settings", "label"), [(OBB, "text"), ({"layout": "text-map", "labels": ["plate"]}, "plate")])
@pytest.mark.verifies("graphs with known answers", "text-map")
def test_bright_rectangle_is_one_text(tmp_path: Path, batch: int | str, settings: dict[str, Any], label: str) -> None:
    file = write(tmp_path, rectangle(20, 30, 12, 42, 0.75), shape=(batch, 3, SIZE, SIZE))
    width, height = expanded(30, 10)
    for found in oriented_detector(file, **settings)([INPUT, INPUT]):
        assert_found(found, (label, 0.75, [26.5, 24.5, width, height, 0]))


def test_upright_text_is_rotated_by_quarter_turn(tmp_path: Path) -> None:
    (box,) = found_in(write(tmp_path, rectangle(10, 40, 20, 30))).boxes.tolist()
    assert box[:4] == pytest.approx([24.5, 24.5, *expanded(30, 10)])
    assert abs(box[4]) == pytest.approx(math.pi / 2)


@pytest.mark.parametrize("degrees", [-60, -10, 45, 70])
def test_rotated_text_keeps_its_angle(tmp_path: Path, degrees: float) -> None:
    cells = dark_map()
    y, x = np.mgrid[:SIZE, :SIZE] + 0.5 - 32
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    cells[(np.abs(x * cosine + y * sine) <= 18) & (np.abs(y * cosine - x * sine) <= 5)] = 0.9
    ((cx, cy, width, height, angle),) = found_in(write(tmp_path, cells)).boxes.tolist()
    # Between the centres of cells, a rotated region is as long as the region itself.
    assert (cx, cy) == pytest.approx((31.5, 31.5), abs=1)
    assert (width, height) == pytest.approx(expanded(37, 11), abs=2)
    assert math.degrees(angle) == pytest.approx(degrees, abs=4)


def test_boxes_are_scaled_back_to_stretched_image(tmp_path: Path) -> None:
    found = found_in(write(tmp_path, rectangle(20, 30, 12, 42)), 2 * SIZE, SIZE)
    width, height = expanded(30, 10)
    assert all_close(found.boxes, [[26.5, 49, width, 2 * height, 0]])


def test_a_coarser_map_is_scaled(tmp_path: Path) -> None:
    cells = np.zeros((SIZE // 4, SIZE // 4), np.float32)
    cells[4:8, 2:12] = 1
    width, height = expanded(10, 4)
    assert all_close(found_in(write(tmp_path, cells)).boxes, [[26, 22, 4 * width, 4 * height, 0]])


def test_faint_narrow_or_nan_regions_are_dropped(tmp_path: Path) -> None:
    cells = dark_map()
    for top, bottom, score in ((4, 10, 0.29), (20, 23, 1), (30, 40, 0.4), (50, 60, np.nan)):
        cells[top:bottom, 4:30] = score
    model = oriented_detector(write(tmp_path, cells), **OBB)
    image = uniform_image(SIZE, SIZE, 0)
    assert [len(found.labels) for found in model([detection_input(image), detection_input(image, 0.3)])] == [0, 1]


@pytest.mark.parametrize(("scale", "count"), [(1, 1), (0.5, 0), (0.8, 1)])
def test_boxes_of_three_image_pixels_are_dropped_like_in_paddleocr(tmp_path: Path, scale: float, count: int) -> None:
    cells = dark_map()
    # Expanded, the smaller side of this region is longer than 5 cells.
    cells[20:24, 20:24] = 1
    assert len(found_in(write(tmp_path, cells), *[int(SIZE * scale)] * 2).labels) == count


def test_images_keep_aspect_ratio_if_graph_allows_any_size(tmp_path: Path) -> None:
    outputs = {"maps": np.zeros((1, 1, 32, 32), np.float32)}
    file = graphs.constant(tmp_path / "model.onnx", outputs, shape=("b", 3, "h", "w"), name="x")
    found = inspected(graphs.source(file, **OBB))
    facts = {fact.topic: fact for fact in found.description.facts}
    assert facts["size of each image"].value == "longer side reduced to 2000, then shorter one enlarged to 736"
    images = [uniform_image(100, 200, 0), uniform_image(10, 100, 0), uniform_image(1000, 800, 0)]
    answers = [answer for image in images for answer in found.graph.run([image])]
    assert [(answer.height, answer.width) for answer in answers] == [(736, 1472), (384, 4000), (992, 800)]
    assert facts["channel order"] == Fact("channel order", "BGR", Origin.GUESSED)
    assert facts["labels"] == Fact("labels", "1: text", Origin.CONVENTION)
    # These are ImageNet's means in the order B, G, R.
    assert facts["mean"].value == "0.406, 0.456, 0.485"


SIDES = st.integers(1, 20_000)
PAGE = TextPage(min_side=736, max_side=2000, max_enlarged=4000)


@given(height=SIDES, width=SIDES)
def test_page_stays_within_bounds(height: int, width: int) -> None:
    frame = PAGE.input_size(height, width)
    assert all(side % 32 == 0 and side >= 32 for side in frame)
    assert max(frame) <= 4000
    assert (frame[0] <= frame[1]) or height >= width


def write_line(
    folder: Path, steps: Sequence[int], count: int = 5, characters: str | None = "a\nb\nc", **graph: Any
) -> Path:
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
@pytest.mark.verifies("graphs with known answers", "ctc")
def test_repetitions_and_blanks_are_left_out(tmp_path: Path, steps: list[int], text: str) -> None:
    (found,) = text_reader(write_line(tmp_path, steps))([prompted_image("what?")])
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
    (found,) = text_reader(write_line(tmp_path, [1, 2, 3], count, characters), **settings)([prompted_image("?")])
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
    found = text_reader(write_line(tmp_path, [1, 2]))([prompted_image("one", "two"), prompted_image("three")])
    assert [(list(prediction.prompts), list(prediction.answers)) for prediction in found] == [
        (["one", "two"], ["ab", "ab"]),
        (["three"], ["ab"]),
    ]


@pytest.mark.parametrize("shape", [("b", 3, 48, "w"), ("b", 3, "h", "w"), (2, 3, 48, "w")])
def test_text_lines_keep_aspect_ratio_if_graph_allows_any_width(tmp_path: Path, shape: Any) -> None:
    found = inspected(graphs.source(write_line(tmp_path, [1], shape=shape)))
    facts = {fact.topic: fact for fact in found.description.facts}
    assert facts["size of each image"].value == "height 48, width that of the image, 320 to 3200"
    assert facts["characters"] == Fact("characters", "5", Origin.MODEL_FILE)
    lines = [uniform_image(24, 100, 0), uniform_image(24, 1000, 0), uniform_image(10, 5000, 0)]
    answers = [answer for line in lines for answer in found.graph.run([line])]
    assert [(answer.height, answer.width) for answer in answers] == [(48, 320), (48, 2000), (48, 3200)]
    # The first line is 200 columns wide, and the rest of its 320 is padding to its right.
    assert (answers[0].placement.scale_x, answers[0].placement.offset_x) == (2, 0)
