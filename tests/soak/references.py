"""Compute the right answers: for images by models in this process, for numbers by arithmetic."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import cv2
import msgspec

from app.core.assembly.in_process import InProcessModel

ROOT = Path(__file__).parents[2]
IMAGES = ("shape.jpg", "scene.jpg", "photo.jpg")
QUESTIONS = ("What shape is in the picture?", "What color is the shape?")
_TOLERANCE = 5e-4
"""Absolute tolerance: threads and batches change the last digits, and protocols round numbers."""


class References:
    """Answers of models for the fixture images.

    Args:
        models: the folder of the models.
        image_models: names of models that accept an image.
        vlm_models: names of models that accept an image and a question.

    Attributes:
        records: by the names of model and image.
        answers: of the questions about ``shape.jpg``, by model and question.
    """

    def __init__(self, models: Path, image_models: Sequence[str], vlm_models: Sequence[str]) -> None:
        pixels = {name: _read(name) for name in IMAGES}
        self.records: dict[tuple[str, str], Any] = {}
        self.answers: dict[tuple[str, str], str] = {}
        for model in image_models:
            in_process = InProcessModel(models / model)
            for name, image in pixels.items():
                self.records[model, name] = _as_json(in_process.ask(image))
        for model in vlm_models:
            in_process = InProcessModel(models / model)
            for question in QUESTIONS:
                (answer,) = _as_json(in_process.ask(pixels[IMAGES[0]], prompts=[question]))
                self.answers[model, question] = answer["answer"]


def is_close(found: Any, expected: Any) -> bool:
    """Return whether two JSON values are equal, with a tolerance for numbers."""
    if isinstance(expected, dict):
        names: list[str] = list(cast("dict[str, Any]", expected))
        return isinstance(found, dict) and found.keys() == set(names) and all(_items_are_close(found, expected, names))
    if isinstance(expected, list):
        indexes = range(len(cast("list[Any]", expected)))
        return (
            isinstance(found, list)
            and len(cast("list[Any]", found)) == len(indexes)
            and all(_items_are_close(found, expected, indexes))
        )
    if isinstance(expected, int | float) and not isinstance(expected, bool):
        return isinstance(found, int | float) and math.isclose(found, expected, rel_tol=1e-5, abs_tol=_TOLERANCE)
    return found == expected


def _items_are_close(found: Any, expected: Any, indexes: Iterable[Any]) -> Iterator[bool]:
    return (is_close(found[index], expected[index]) for index in indexes)


def _read(name: str) -> Any:
    pixels: Any = cv2.imread(str(ROOT / "fixtures" / "images" / name))
    if pixels is None:
        raise FileNotFoundError(name)
    return cast("Any", cv2).cvtColor(pixels, cv2.COLOR_BGR2RGB)


def _as_json(records: Sequence[object]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(records))
