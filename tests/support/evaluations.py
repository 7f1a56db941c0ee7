"""Create items and findings for tests in one line."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import cv2
import numpy as np

from app.evaluation.answers import Answered, Found
from app.evaluation.dataset import Item, LabelledObject

Box = tuple[float, float, float, float]


def item(
    name: str = "a.jpg",
    objects: Sequence[LabelledObject] = (),
    *,
    size: tuple[int, int] = (640, 480),
    label: str = "",
    metadata: Mapping[str, str] | None = None,
    question: str = "",
    answers: Sequence[str] = (),
) -> Item:
    return Item(
        id=name,
        image=Path(name),
        width=size[0],
        height=size[1],
        objects=tuple(objects),
        label=label,
        metadata=metadata or {},
        question=question,
        answers=tuple(answers),
    )


def boxes(
    truths: Sequence[tuple[str, Box]],
    found: Sequence[tuple[str, float, Box]],
    name: str = "a.jpg",
    metadata: Mapping[str, str] | None = None,
) -> Answered:
    """Return ground truth boxes and detected boxes, axis-aligned."""
    objects = [LabelledObject(label=label, box=box) for label, box in truths]
    guesses = tuple(Found(label=label, score=score, box=box) for label, score, box in found)
    return Answered(item=item(name, objects, metadata=metadata), found=guesses)


def classified(
    truth: str, found: Mapping[str, float], name: str, metadata: Mapping[str, str] | None = None
) -> Answered:
    """Return one image of one class, and its scores."""
    guesses = tuple(Found(label=label, score=score) for label, score in found.items())
    return Answered(item=item(name, label=truth, metadata=metadata), found=guesses)


def write_picture(path: Path, width: int = 64, height: int = 48, colour: tuple[int, int, int] = (40, 90, 160)) -> Path:
    """Write a plain image file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    cv2.imwrite(str(path), np.full((height, width, 3), colour, np.uint8))
    return path
