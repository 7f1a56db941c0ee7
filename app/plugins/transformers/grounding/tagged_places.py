"""Read the tags of Qwen2-VL and DeepSeek-VL2.

Qwen2-VL (https://arxiv.org/abs/2409.12191): ``<|object_ref_start|>cat<|object_ref_end|><|box_start|>(10,20),(300,400)
<|box_end|>``, also several boxes after a name, and ``<|quad_start|>`` with four corners. DeepSeek-VL2
(https://arxiv.org/abs/2412.10302): ``<|ref|>cat<|/ref|><|det|>[[10, 20, 300, 400]]<|/det|>``.
"""

import re

from app.plugins.transformers.grounding.printed import Place, Reading, box, pairs

_QWEN_TAGS = re.compile(
    r"<\|object_ref_start\|>(?P<label>.*?)<\|object_ref_end\|>|<\|(?P<kind>box|quad)_start\|>(?P<points>[^<]*)"
    r"(?P<end><\|(?P=kind)_end\|>)?",
    re.DOTALL,
)
_QWEN_POINTS = {count: re.compile(r"\s*,\s*".join([r"\(\s*(\d+)\s*,\s*(\d+)\s*\)"] * count)) for count in (2, 4)}
_DEEPSEEK_TAGS = re.compile(
    r"(?:<\|ref\|>(?P<label>.*?)<\|/ref\|>\s*)?<\|det\|>(?P<boxes>[^<]*)(?P<end><\|/det\|>)?", re.DOTALL
)
_NUMBER = r"\s*(\d+(?:\.\d+)?)\s*"
_BOX = re.compile(rf"\[{','.join([_NUMBER] * 4)}\]")


def read_qwen_tags(text: str, prompt: str) -> Reading:
    """Read boxes and quadrilaterals. Text between a name and a box separates them."""
    del prompt
    places: list[Place] = []
    label, end, unread = "", -1, 0
    for tag in _QWEN_TAGS.finditer(text):
        gap, end = text[end : tag.start()] if end >= 0 else "", tag.end()
        if tag["label"] is not None:
            label = tag["label"].strip()
            continue
        label = "" if gap.strip(" \n,") else label
        points = _QWEN_POINTS[2 if tag["kind"] == "box" else 4].fullmatch(tag["points"].strip())
        if points is None or tag["end"] is None:
            unread += 1
            continue
        numbers = [float(number) for number in points.groups()]
        is_box = tag["kind"] == "box"
        places.append(box(label, numbers) if is_box else Place(label, "polygon", [pairs(numbers)]))
    return Reading(places, unread)


def read_deepseek_tags(text: str, prompt: str) -> Reading:
    """Read boxes."""
    del prompt
    places: list[Place] = []
    unread = 0
    for tag in _DEEPSEEK_TAGS.finditer(text):
        boxes = [[float(number) for number in found] for found in _BOX.findall(tag["boxes"])]
        is_complete = tag["end"] is not None and not _BOX.sub("", tag["boxes"]).strip("[], \n")
        unread += not (boxes and is_complete)
        places += [box((tag["label"] or "").strip(), numbers) for numbers in boxes]
    return Reading(places, unread)
