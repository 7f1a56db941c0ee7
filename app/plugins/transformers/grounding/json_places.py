"""Read the JSON of Qwen2.5-VL and Qwen3-VL: objects with `bbox_2d` or `point_2d`, and `label`.

The members are as in the cookbooks of both models (https://github.com/QwenLM/Qwen3-VL, cookbooks/2d_grounding.ipynb
and spatial_understanding.ipynb). For text in an image, the cookbooks name the label `text_content`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, cast

from app.plugins.transformers.grounding.printed import Place, Places, box

_NAMED = re.compile(r'"(?:bbox|point)_2d"')
_REASONED = "</think>"
"""Ends the reasoning before an answer, which may contain other places."""


def read_json_places(text: str, _prompt: str) -> Places:
    """Read the objects in `text`, which may be in a list, in other objects, in a code block or between sentences.

    An answer that was cut off has its complete objects.
    """
    text = text.rpartition(_REASONED)[2]
    places = [place for value in _values(text) for place in _places(value)]
    yield from places
    yield from [None] * (len(_NAMED.findall(text)) - len(places))


def _values(text: str) -> Iterator[object]:
    """Yield the outermost JSON objects that are complete."""
    decoder, position = json.JSONDecoder(), text.find("{")
    while position >= 0:
        try:
            value, end = decoder.raw_decode(text, position)
            yield value
        except (ValueError, RecursionError):
            end = position + 1
        position = text.find("{", end)


def _places(value: object) -> Iterator[Place]:
    if isinstance(value, list):
        for element in cast("list[object]", value):
            yield from _places(element)
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
            yield from _places(field)


def _are_numbers(value: object, count: int) -> bool:
    numbers: Sequence[object] = cast("list[object]", value) if isinstance(value, list) else ()
    return len(numbers) == count and all(type(number) in (int, float) for number in numbers)
