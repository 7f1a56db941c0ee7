"""Read printed places of each family, and compare with the processors' own functions."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.plugins.transformers.grounding.forms import FORMS, read_grounding
from tasks.image_segmentation import SegmentedObject
from tasks.image_text_to_text import LocatedPoint
from tasks.object_detection import DetectedObject
from tests.support.models import tiny_models

SIZE, INPUT = (640, 480), (280, 196)

REF, BOX = "<|object_ref_start|>{}<|object_ref_end|>", "<|box_start|>{}<|box_end|>"
CAT = REF.format("cat")

READ = [
    ("qwen2_vl", CAT + BOX.format("(100,250),(500,1000)"), [("cat", 64, 120, 320, 480)]),
    ("qwen2_vl", CAT + BOX.format("(0, 0), (500, 500)") + BOX.format("(100,100),(200,200)"),
     [("cat", 0, 0, 320, 240), ("cat", 64, 48, 128, 96)]),
    ("qwen2_vl", CAT + " and a dog" + BOX.format("(0,0),(500,500)"), [("", 0, 0, 320, 240)]),
    ("qwen2_5_vl", '```json\n[\n\t{"bbox_2d": [28, 49, 140, 196], "label": "cat"}\n]\n```',
     [("cat", 64, 120, 320, 480)]),
    ("qwen2_5_vl", '{"bbox_2d": [0, 0, 281, 98], "text_content": "HI"}', [("HI", 0, 0, 640, 240)]),
    ("qwen3_vl", '[{"bbox_2d": [100, 250, 500, 1000], "label": "cat"}]', [("cat", 64, 120, 320, 480)]),
    ("qwen3_vl", '<think>not [{"bbox_2d": [1, 2, 3, 4]}]</think>[{"bbox_2d": [0, 0, 500, 500], "label": "a \\"b\\""}]',
     [('a "b"', 0, 0, 320, 240)]),
    ("qwen3_vl", 'See [1], {x}: {"found": {"cats": [{"bbox_2d": [0, 0.5, 500, 500.0]}]}} or {"bbox_2d": [0, 0, 1, 1]}',
     [("", 0, 0.24, 320, 240), ("", 0, 0, 0.64, 0.48)]),
    ("deepseek_vl2", "<|ref|>cat<|/ref|><|det|>[[0, 333, 999, 999], [0, 0, 333, 333]]<|/det|>.",
     [("cat", 0, 160, 640, 480), ("cat", 0, 0, 213.3333, 160)]),
    ("paligemma", "<loc0256><loc0512><loc1023><loc0768> cat ; <loc0000><loc0000><loc0512><loc0512> big dog",
     [("cat", 320, 120, 480, 479.5312), ("big dog", 0, 0, 320, 240)]),
    ("paligemma", "<loc0256><loc0512><loc1023><loc0768>" + "<seg012>" * 16 + " cat",
     [("cat", 320, 120, 480, 479.5312)]),
    ("florence2", "cat<loc_99><loc_249><loc_499><loc_999>", [("cat", 63.68, 119.76, 319.68, 479.76)]),
]  # fmt: skip


@pytest.mark.parametrize(("family", "text", "expected"), READ)
def test_boxes_are_in_pixels_of_the_image(family: str, text: str, expected: list[tuple[Any, ...]]) -> None:
    approx: Any = pytest.approx
    found = read_grounding(FORMS[family], text, "<OD>", SIZE, INPUT, 0.75)
    assert found.note == ""
    assert found.objects == [
        DetectedObject(label, 0.75, *(approx(number, abs=1e-3) for number in numbers)) for label, *numbers in expected
    ]


def test_points_and_polygons_are_in_pixels_of_the_image() -> None:
    (point,) = read_grounding(FORMS["qwen3_vl"], '{"point_2d": [500, 250], "label": "eye"}', "", SIZE, None, 1).objects
    assert point == LocatedPoint("eye", 1, 320, 120)
    quad = "HI<loc_0><loc_0><loc_499><loc_0><loc_499><loc_499><loc_0><loc_499>"
    (polygon,) = read_grounding(FORMS["florence2"], quad, "<OCR_WITH_REGION>", SIZE, None, 1).objects
    assert isinstance(polygon, SegmentedObject)
    (ring,) = polygon.rings(*SIZE)
    # The left top corner of the image is half a pixel from the centre of its first pixel.
    assert (ring + 0.5).round(2).tolist() == [[0.32, 0.24], [319.68, 0.24], [319.68, 239.76], [0.32, 239.76]]


UNREAD = [
    ("qwen2_vl", BOX.format("(100,250)") + BOX.format("(1,2),(3,x4)") + "<|box_start|>(1,2),(3,4)", 0, 3),
    ("qwen3_vl", '[{"bbox_2d": [0, 0, 9, 9], "label": "a"}, {"bbox_2d": [10, 20, 30', 1, 1),
    ("qwen3_vl", '[{"bbox_2d": [0, 0, 9]}, {"bbox_2d": ["0", "0", "9", "9"]}, {"bbox_2d": [0, 0, true, 9]}]', 0, 3),
    ("qwen3_vl", '[{"bbox_2d": [0, 0, 9, 1011]}, {"bbox_2d": [9, 0, 9, 9]}, {"bbox_2d": [0, 0, NaN, 9]}]', 0, 3),
    ("qwen3_vl", '{"a":' * 20_000 + '{"bbox_2d": [1, 2, 3', 0, 1),
    ("qwen2_5_vl", '{"bbox_2d": [0, 0, 640, 480]}', 0, 1),
    ("deepseek_vl2", "<|ref|>a<|/ref|><|det|>[[0, 0, 9, 9], [1, 2]]<|/det|><|det|>[[0, 0, 9, 9]]", 0, 2),
    ("deepseek_vl2", "<|det|>[[0, 0, 9, 1999]]<|/det|>", 0, 1),
    ("paligemma", "<loc0256><loc0512><loc1023> cat", 0, 1),
    ("florence2", "cat<loc_1><loc_2><loc_3><loc_4><loc_5>", 1, 1),
]


@pytest.mark.parametrize(("family", "text", "objects", "unread"), UNREAD)
def test_place_that_cannot_be_read_gives_a_note_and_no_box(family: str, text: str, objects: int, unread: int) -> None:
    found = read_grounding(FORMS[family], text, "<OD>", SIZE, INPUT, 0.5)
    assert len(found.objects) == objects
    assert found.note == f"{unread} printed place{'s' * (unread > 1)} could not be read"


@pytest.mark.parametrize("family", FORMS)
@pytest.mark.parametrize("text", ["", "A cat.", 'Take [1, 2, 3, 4] or {"a": 1}.', "(1,2),(3,4)"])
def test_prose_has_neither_objects_nor_a_note(family: str, text: str) -> None:
    found = read_grounding(FORMS[family], text, "", SIZE, INPUT, 0.5)
    assert (found.objects, found.note) == ([], "")


def test_places_are_not_read_without_the_sizes_that_they_need() -> None:
    text = '{"bbox_2d": [1, 2, 30, 40]}'
    for family, size, input_size in [("qwen3_vl", None, INPUT), ("qwen2_5_vl", SIZE, None)]:
        assert read_grounding(FORMS[family], text, "", size, input_size, 1).note == "1 printed place could not be read"
    # An answer of Florence-2 to a question without a task may have places of any kind.
    places = "cat<loc_1><loc_2><loc_3><loc_4>"
    assert read_grounding(FORMS["florence2"], places, "Where is it?", SIZE, None, 1).objects == []


@given(st.sampled_from(sorted(FORMS)), st.text() | st.text('[{}]"bbox_2d:,0123456789 <|loc_>()', max_size=60))
def test_any_text_can_be_read(family: str, text: str) -> None:
    for place in read_grounding(FORMS[family], text, "<OD>", SIZE, INPUT, 0.5).objects:
        assert not isinstance(place, DetectedObject) or (0 <= place.xmin < place.xmax <= 640)


SIDE = st.lists(st.integers(0, 999), min_size=2, max_size=2, unique=True).map(sorted)
LOCATIONS = st.lists(st.integers(0, 999), min_size=6, max_size=9)
LABEL = st.text("abc de", min_size=1).filter(str.strip)
POLYGONS = st.lists(LOCATIONS, min_size=1, max_size=3)


def spelled(numbers: list[int]) -> str:
    return "".join(f"<loc_{number}>" for number in numbers)


SIDES = st.tuples(SIDE, SIDE).map(lambda sides: [number for corner in zip(*sides, strict=True) for number in corner])
BOXES = st.lists(SIDES.map(spelled), min_size=1)
QUAD = st.lists(st.integers(0, 999), min_size=8, max_size=8).map(spelled)
RINGS = POLYGONS.map(lambda rings: "<sep>".join(map(spelled, rings)))
OBJECTS = st.tuples(LABEL, BOXES.map("".join)).map("".join)
TASKS = {
    "<OD>": OBJECTS,
    "<DENSE_REGION_CAPTION>": OBJECTS,
    "<CAPTION_TO_PHRASE_GROUNDING>": OBJECTS,
    "<REGION_PROPOSAL>": BOXES.map("".join),
    "<OCR_WITH_REGION>": st.tuples(LABEL, QUAD).map("".join),
    "<REFERRING_EXPRESSION_SEGMENTATION>": RINGS,
    "<REGION_TO_SEGMENTATION>": RINGS,
    "<OPEN_VOCABULARY_DETECTION>": st.tuples(LABEL, RINGS.map("<poly>{}</poly>".format)).map("".join) | OBJECTS,
}
PARSERS = {
    "description_with_bboxes": {}, "phrase_grounding": {}, "bboxes": {}, "polygons": {},
    "description_with_bboxes_or_polygons": {}, "ocr": {"PATTERN": r"(.+?)" + r"<loc_(\d+)>" * 8},
}  # fmt: skip
"""The configuration of the processor on the hub, without words that it leaves out of phrases."""


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
@given(data=st.data(), width=st.integers(1, 4000), height=st.integers(1, 4000))
def test_places_of_florence_equal_post_process_generation(
    florence: Any, task: str, data: st.DataObject, width: int, height: int
) -> None:
    """The processor truncates to whole pixels, so that ours lie less than a pixel to the right and below."""
    objects = data.draw(st.lists(TASKS[task], max_size=1 if task.startswith(("<RE", "<OP")) else 3))
    text = f"</s><s>{''.join(objects)}</s>"
    expected = florence.post_process_generation(text=text, task=task, image_size=(width, height))[task]
    found = read_grounding(FORMS["florence2"], text, task, (width, height), None, 1)
    rings: list[Any] = []
    for one in found.objects:
        is_box = isinstance(one, DetectedObject)
        assert is_box or isinstance(one, SegmentedObject)
        rings += [[[one.xmin, one.ymin], [one.xmax, one.ymax]]] if is_box else [ring + 0.5 for ring in one.rings(0, 0)]
    listed = [*expected.get("bboxes", ()), *expected.get("quad_boxes", ())]
    listed += [ring for polygon in expected.get("polygons", ()) for ring in polygon]
    labels = [*expected.get("labels", ()), *expected.get("bboxes_labels", ()), *expected.get("polygons_labels", ())]
    assert [one.label for one in found.objects] == labels
    assert found.note == ""
    for ring, reference in zip(map(np.ravel, rings), listed, strict=True):
        assert (np.abs(ring - np.array(reference) - 0.5) < 0.501).all()


@pytest.fixture(scope="module")
def florence() -> Any:
    t = tiny_models.transformers()
    image_processor = t.CLIPImageProcessorPil()
    image_processor.image_seq_length = 17
    roles = {"bos_token": "<s>", "extra_special_tokens": {"image_token": "<image>"}}
    tokenizer = tiny_models.byte_tokenizer("<s>", "<image>", **roles)
    return t.Florence2Processor(image_processor, tokenizer, post_processor_config=PARSERS)
