"""Read the places in an answer as each family of models prints them: tags, JSON or location tokens.

- Qwen2-VL (https://arxiv.org/abs/2409.12191): ``<|object_ref_start|>cat<|object_ref_end|><|box_start|>(10,20),(300,400)
  <|box_end|>``, also several boxes after a name.
- DeepSeek-VL2 (https://arxiv.org/abs/2412.10302): ``<|ref|>cat<|/ref|><|det|>[[10, 20, 300, 400]]<|/det|>``.
- Qwen2.5-VL and Qwen3-VL: JSON objects with `bbox_2d` or `point_2d`, and `label`, as in their cookbooks
  (https://github.com/QwenLM/Qwen3-VL, cookbooks/2d_grounding.ipynb and spatial_understanding.ipynb). For text in an
  image, the cookbooks name the label `text_content`.
- Florence-2 (`Florence2Processor` of transformers) and PaliGemma (https://github.com/google-research/big_vision,
  paligemma): location tokens.
"""

import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Literal, cast

import msgspec

Ring = Sequence[tuple[float, float]]
"""Points (x, y): two corners of a box, one point, or the corners of a polygon."""

Places = Iterator["Place | None"]
"""The places that an answer prints; None for each that cannot be read."""


class Place(msgspec.Struct, frozen=True):
    """One place in an image, in the units of its form: x to the right, y down.

    A box has one ring, with its left top and its right bottom corner. A polygon may have several rings, whose pixels
    are inside an odd number of them.
    """

    label: str
    kind: Literal["box", "point", "polygon"]
    rings: Sequence[Ring]


def box(label: str, numbers: Sequence[float]) -> Place:
    """Return the box with the numbers left, top, right and bottom."""
    left, top, right, bottom = numbers
    return Place(label, "box", [[(left, top), (right, bottom)]])


def pairs(numbers: Sequence[float]) -> Ring:
    """Return the points with the coordinates x, y, x, y, ...; a last x without a y is left out."""
    return list(zip(numbers[::2], numbers[1::2], strict=False))


_TAGGED_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def _read_tags(text: str, _prompt: str, *, tags: tuple[str, str, str, str]) -> Places:
    """Read boxes, also several in one tag. Text between a name and a box separates them."""
    name, name_end, start, end = tags
    tagged = rf"<\|{start}\|>[^<]*(?:<\|{end}\|>)?[\s,]*"
    for label, boxes in re.findall(rf"(?:<\|{name}\|>([^<]*)<\|{name_end}\|>\s*)?((?:{tagged})+)", text):
        for printed, closing in re.findall(rf"<\|{start}\|>([^<]*)(<\|{end}\|>)?", boxes):
            numbers = [float(number) for number in _TAGGED_NUMBER.findall(printed)]
            if closing and numbers and len(numbers) % 4 == 0 and not _TAGGED_NUMBER.sub("", printed).strip("()[], \n"):
                yield from (box(label.strip(), numbers[at : at + 4]) for at in range(0, len(numbers), 4))
            else:
                yield None


read_qwen_tags = partial(_read_tags, tags=("object_ref_start", "object_ref_end", "box_start", "box_end"))
read_deepseek_tags = partial(_read_tags, tags=("ref", "/ref", "det", "/det"))

_NAMED = re.compile(r'"(?:bbox|point)_2d"')
_REASONED = "</think>"
"""Ends the reasoning before an answer, which may contain other places."""


def read_json_places(text: str, _prompt: str) -> Places:
    """Read the objects in `text`, which may be in a list, in other objects, in a code block or between sentences.

    An answer that was cut off has its complete objects.
    """
    text = text.rpartition(_REASONED)[2]
    places = [place for value in _json_objects(text) for place in _json_places(value)]
    yield from places
    yield from [None] * (len(_NAMED.findall(text)) - len(places))


def _json_objects(text: str) -> Iterator[object]:
    """Yield the outermost JSON objects that are complete."""
    decoder, position = json.JSONDecoder(), text.find("{")
    while position >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
            yield value
        except (ValueError, RecursionError):
            end = position + 1
        position = text.find("{", end)


def _json_places(value: object) -> Iterator[Place]:
    if isinstance(value, list):
        for element in cast("list[object]", value):
            yield from _json_places(element)
    if not isinstance(value, dict):
        return
    fields = cast("dict[str, Any]", value)
    label = fields.get("label", fields.get("text_content"))
    label = label if isinstance(label, str) else ""
    for name, field in fields.items():
        if name == "bbox_2d" and _are_numbers(field, 4):
            yield box(label, field)
        elif name == "point_2d" and _are_numbers(field, 2):
            yield Place(label, "point", [[(field[0], field[1])]])
        else:
            yield from _json_places(field)


def _are_numbers(value: object, count: int) -> bool:
    numbers: Sequence[object] = cast("list[object]", value) if isinstance(value, list) else ()
    return len(numbers) == count and all(type(number) in (int, float) for number in numbers)


_BOXES, _QUADS, _POLYGONS = 4, 8, 0
"""Numbers of a place in an answer of Florence-2; polygons have any number."""

_FLORENCE_TASKS = {
    "<OD>": _BOXES,
    "<DENSE_REGION_CAPTION>": _BOXES,
    "<CAPTION_TO_PHRASE_GROUNDING>": _BOXES,
    "<REGION_PROPOSAL>": _BOXES,
    "<OPEN_VOCABULARY_DETECTION>": _BOXES,
    "<OCR_WITH_REGION>": _QUADS,
    "<REFERRING_EXPRESSION_SEGMENTATION>": _POLYGONS,
    "<REGION_TO_SEGMENTATION>": _POLYGONS,
}
"""The tasks of Florence-2 whose answers have places."""

_CONTROL = re.compile(r"</?s>|<pad>")
_LABELLED = re.compile(r"([^<]*)((?:\s*<(?:loc_\d+|sep|/?poly)>)+)")
_LOCATION = re.compile(r"<loc_(\d+)>")
_PALIGEMMA = re.compile(r"((?:<loc\d{4}>)+)\s*(?:<seg\d{3}>)*\s*([^<;]*)")
_PALIGEMMA_LOCATION = re.compile(r"<loc(\d{4})>")


def read_florence_locations(text: str, prompt: str) -> Places:
    """Read ``label<loc_10><loc_20><loc_300><loc_400>``: boxes, quadrilaterals or polygons, by the task in `prompt`.

    Numbers are x and y. ``<sep>`` separates the polygons of an object, which ``<poly>`` and ``</poly>`` enclose.
    The places in an answer to another prompt are not read, because they may be of any kind.
    """
    size = next((size for task, size in _FLORENCE_TASKS.items() if prompt.startswith(task)), None)
    for label, tokens in _LABELLED.findall(_CONTROL.sub("", text)):
        numbers = [int(number) for number in _LOCATION.findall(tokens)]
        if size is None:
            yield None
        elif size == _POLYGONS or "<poly>" in tokens:
            yield from list(_florence_polygons(label.strip(), tokens)) or [None]
        else:
            yield from (
                _florence_place(label.strip(), numbers[at : at + size])
                for at in range(0, len(numbers) - size + 1, size)
            )
            yield from [None] * (len(numbers) % size > 0)


def read_paligemma_locations(text: str, _prompt: str) -> Places:
    """Read boxes, ``<loc0020><loc0010><loc0400><loc0300> cat``, separated by semicolons. Numbers are y and x.

    A mask, ``<seg000>`` and so on, needs a decoder with weights of its own, and is left out.
    """
    for tokens, label in _PALIGEMMA.findall(text):
        numbers = [int(number) for number in _PALIGEMMA_LOCATION.findall(tokens)]
        if len(numbers) == 4:
            top, left, bottom, right = numbers
            yield box(label.strip(), (left, top, right, bottom))
        else:
            yield None


def _florence_place(label: str, numbers: Sequence[float]) -> Place:
    return box(label, numbers) if len(numbers) == _BOXES else Place(label, "polygon", [pairs(numbers)])


def _florence_polygons(label: str, tokens: str) -> Iterator[Place]:
    """Yield one place for each object; its rings have at least three points."""
    for polygons in tokens.split("</poly>"):
        numbers = [[int(number) for number in _LOCATION.findall(ring)] for ring in polygons.split("<sep>")]
        rings = [pairs(ring) for ring in numbers if len(ring) >= 6]
        if rings:
            yield Place(label, "polygon", rings)
