"""Compute the right answers: for images by models in this process, for numbers by arithmetic."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import cv2
import msgspec

from app.assembly.in_process import InProcessModel

__all__ = ("PICTURES", "QUESTIONS", "ROOT", "References", "same")

ROOT = Path(__file__).parents[2]
PICTURES = ("shape.jpg", "scene.jpg", "photo.jpg")
QUESTIONS = ("What shape is in the picture?", "What color is the shape?")
_NEAR = 5e-4
"""Numbers that differ by less are the same: threads and batches change the last digits, protocols round them."""


class References:
    """Answers of models for the fixture images.

    Args:
        models: the folder of the models.
        pictured: names of models that accept an image; `answering` those that also accept a question.
        answering: names of models.

    Attributes:
        records: by the names of model and image.
        answers: of the questions about ``shape.jpg``, by model and question.
    """

    def __init__(self, models: Path, pictured: Sequence[str], answering: Sequence[str]) -> None:
        pixels = {name: _read(name) for name in PICTURES}
        self.records: dict[tuple[str, str], Any] = {}
        self.answers: dict[tuple[str, str], str] = {}
        for model in pictured:
            alone = InProcessModel(models / model)
            for name, image in pixels.items():
                self.records[model, name] = _plain(alone.ask(image))
        for model in answering:
            alone = InProcessModel(models / model)
            for question in QUESTIONS:
                (found,) = _plain(alone.ask(pixels[PICTURES[0]], prompts=[question]))
                self.answers[model, question] = found["answer"]


def same(found: Any, wanted: Any) -> bool:
    """Whether two JSON values are the same, numbers nearly so."""
    if isinstance(wanted, dict):
        names: list[str] = list(cast("dict[str, Any]", wanted))
        return isinstance(found, dict) and found.keys() == set(names) and all(_same_at(found, wanted, names))
    if isinstance(wanted, list):
        places = range(len(cast("list[Any]", wanted)))
        return (
            isinstance(found, list)
            and len(cast("list[Any]", found)) == len(places)
            and all(_same_at(found, wanted, places))
        )
    if isinstance(wanted, int | float) and not isinstance(wanted, bool):
        return isinstance(found, int | float) and math.isclose(found, wanted, rel_tol=1e-5, abs_tol=_NEAR)
    return found == wanted


def _same_at(found: Any, wanted: Any, places: Iterable[Any]) -> Iterator[bool]:
    return (same(found[place], wanted[place]) for place in places)


def _read(name: str) -> Any:
    pixels: Any = cv2.imread(str(ROOT / "fixtures" / "images" / name))
    if pixels is None:
        raise FileNotFoundError(name)
    return cast("Any", cv2).cvtColor(pixels, cv2.COLOR_BGR2RGB)


def _plain(records: Sequence[object]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(records))
