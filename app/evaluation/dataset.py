"""What a labelled dataset is, whatever format it came in."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from app.evaluation.extras import EvaluationError
from tasks.task import TaskType

__all__ = ("Dataset", "Faults", "Item", "LabelledObject", "Ring", "fingerprint")

_TOLD = 10

Ring = tuple[tuple[float, float], ...]
"""Points x, y in pixels of the image, y down; closed, its first point not repeated."""


class LabelledObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object that is in an image.

    Attributes:
        label: its class.
        box: left, top, right, bottom in pixels; None where only an outline is known.
        corners: of a turned box, four points in pixels, in order.
        rings: the outline of a mask, in pixels.
        even_odd: whether a ring inside another is a hole; else every ring is a part of its own.
        ignored: whether it is neither to be found nor wrong to find: COCO's crowds, DOTA's difficult objects.
        place: the file and the line, or the element, that says so.
    """

    label: str
    box: tuple[float, float, float, float] | None = None
    corners: Ring | None = None
    rings: tuple[Ring, ...] | None = None
    even_odd: bool = False
    ignored: bool = False
    place: str = ""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One image, or one question about an image, and what is true of it.

    Attributes:
        id: names it within the dataset.
        image: its file.
        width: of the image, pixels; 0 where it is not known.
        height: of the image, pixels.
        label: its class, for classification.
        objects: what is in it, for detection and segmentation.
        question: what to ask, for answers.
        answers: those that are right.
        metadata: by which results can be sliced.
    """

    id: str
    image: Path
    width: int = 0
    height: int = 0
    label: str = ""
    objects: tuple[LabelledObject, ...] = ()
    question: str = ""
    answers: tuple[str, ...] = ()
    metadata: Mapping[str, str] = {}


class Dataset(msgspec.Struct, frozen=True, kw_only=True):
    """Labelled images.

    Attributes:
        path: what was read.
        format: how it was written.
        tasks: what a model could be measured by it at, the likeliest first.
        labels: its classes, those without an example included; empty for answers.
        items: the images.
        notes: sentences about what was left out.
    """

    path: Path
    format: str
    tasks: tuple[TaskType, ...]
    labels: tuple[str, ...] = ()
    items: tuple[Item, ...]
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Faults:
    """What is wrong with labels, gathered so that all of it can be mended at once.

    Args:
        lenient: whether what is wrong is left out and noted, instead of being an error.
    """

    lenient: bool = False
    found: list[str] = field(default_factory=list[str])
    flat: list[str] = field(default_factory=list[str])

    def add(self, place: str, sentence: str) -> None:
        """Something at `place` is wrong."""
        self.found.append(f"{place}: {sentence}")

    def leave_out(self, place: str) -> None:
        """An object without area, which no detection could match, is left out in any case."""
        self.flat.append(place)

    def notes(self) -> tuple[str, ...]:
        """Sentences about what was left out.

        Raises:
            EvaluationError: when there are faults that may not be left out.
        """
        if self.found and not self.lenient:
            raise EvaluationError(
                "\n  ".join([f"{len(self.found)} labels or images cannot be used:", *_few(self.found)])
                + "\n--skip-bad leaves them out"
            )
        notes = [f"Left out as unusable: {each}" for each in _few(self.found)]
        if self.flat:
            notes.append(f"{len(self.flat)} objects without area were left out: {', '.join(_few(self.flat))}")
        return tuple(notes)


def fingerprint(dataset: Dataset) -> str:
    """What tells one set of images and questions from another; labels may be mended without a change of it."""
    lines = (f"{item.id}\0{item.question}\n" for item in dataset.items)
    return hashlib.sha256("".join(lines).encode(errors="surrogatepass")).hexdigest()[:32]


def _few(lines: Sequence[str]) -> list[str]:
    more = [f"and {len(lines) - _TOLD} more"] if len(lines) > _TOLD else []
    return [*lines[:_TOLD], *more]
