"""Read the location tokens of Florence-2 and PaliGemma."""

import re
from collections.abc import Iterator, Sequence

from app.plugins.transformers.grounding.printed import Place, Places, box, pairs

_BOXES, _QUADS, _POLYGONS = 4, 8, 0
"""Numbers of a place in an answer of Florence-2; polygons have any number."""

_TASKS = {
    "<OD>": _BOXES,
    "<DENSE_REGION_CAPTION>": _BOXES,
    "<CAPTION_TO_PHRASE_GROUNDING>": _BOXES,
    "<REGION_PROPOSAL>": _BOXES,
    "<OPEN_VOCABULARY_DETECTION>": _BOXES,
    "<OCR_WITH_REGION>": _QUADS,
    "<REFERRING_EXPRESSION_SEGMENTATION>": _POLYGONS,
    "<REGION_TO_SEGMENTATION>": _POLYGONS,
}
"""The tasks of Florence-2 whose answers have places, as in `Florence2Processor` of transformers."""

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
    size = next((size for task, size in _TASKS.items() if prompt.startswith(task)), None)
    for label, tokens in _LABELLED.findall(_CONTROL.sub("", text)):
        numbers = [int(number) for number in _LOCATION.findall(tokens)]
        if size is None:
            yield None
        elif size == _POLYGONS or "<poly>" in tokens:
            yield from list(_polygons(label.strip(), tokens)) or [None]
        else:
            yield from (
                _place(label.strip(), numbers[at : at + size]) for at in range(0, len(numbers) - size + 1, size)
            )
            yield from [None] * (len(numbers) % size > 0)


def read_paligemma_locations(text: str, _prompt: str) -> Places:
    """Read boxes, ``<loc0020><loc0010><loc0400><loc0300> cat``, separated by semicolons. Numbers are y and x.

    The order and the scale are as in big_vision (https://github.com/google-research/big_vision, paligemma). A mask,
    ``<seg000>`` and so on, needs a decoder with weights of its own, and is left out.
    """
    for tokens, label in _PALIGEMMA.findall(text):
        numbers = [int(number) for number in _PALIGEMMA_LOCATION.findall(tokens)]
        if len(numbers) == 4:
            top, left, bottom, right = numbers
            yield box(label.strip(), (left, top, right, bottom))
        else:
            yield None


def _place(label: str, numbers: Sequence[float]) -> Place:
    return box(label, numbers) if len(numbers) == _BOXES else Place(label, "polygon", [pairs(numbers)])


def _polygons(label: str, tokens: str) -> Iterator[Place]:
    """Yield one place for each object; its rings have at least three points."""
    for polygons in tokens.split("</poly>"):
        numbers = [[int(number) for number in _LOCATION.findall(ring)] for ring in polygons.split("<sep>")]
        rings = [pairs(ring) for ring in numbers if len(ring) >= 6]
        if rings:
            yield Place(label, "polygon", rings)
