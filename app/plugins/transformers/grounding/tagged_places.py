"""Read the tags of Qwen2-VL and DeepSeek-VL2.

Qwen2-VL (https://arxiv.org/abs/2409.12191): ``<|object_ref_start|>cat<|object_ref_end|><|box_start|>(10,20),(300,400)
<|box_end|>``, also several boxes after a name. DeepSeek-VL2 (https://arxiv.org/abs/2412.10302):
``<|ref|>cat<|/ref|><|det|>[[10, 20, 300, 400]]<|/det|>``.
"""

import re

from app.plugins.transformers.grounding.printed import Places, box

_QWEN = ("object_ref_start", "object_ref_end", "box_start", "box_end")
_DEEPSEEK = ("ref", "/ref", "det", "/det")
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def read_qwen_tags(text: str, _prompt: str) -> Places:
    """Read boxes; text between a name and a box separates them."""
    return _read(text, *_QWEN)


def read_deepseek_tags(text: str, _prompt: str) -> Places:
    """Read boxes, several in one tag."""
    return _read(text, *_DEEPSEEK)


def _read(text: str, name: str, name_end: str, start: str, end: str) -> Places:
    tagged = rf"<\|{start}\|>[^<]*(?:<\|{end}\|>)?[\s,]*"
    for label, boxes in re.findall(rf"(?:<\|{name}\|>([^<]*)<\|{name_end}\|>\s*)?((?:{tagged})+)", text):
        for printed, closing in re.findall(rf"<\|{start}\|>([^<]*)(<\|{end}\|>)?", boxes):
            numbers = [float(number) for number in _NUMBER.findall(printed)]
            if closing and numbers and len(numbers) % 4 == 0 and not _NUMBER.sub("", printed).strip("()[], \n"):
                yield from (box(label.strip(), numbers[at : at + 4]) for at in range(0, len(numbers), 4))
            else:
                yield None
