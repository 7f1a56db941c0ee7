"""A labelled dataset, independent of its format, and the error and optional libraries of evaluations."""

import hashlib
import importlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from app.core.engine.error_text import needs_extra
from tasks.task import TaskType

_MAX_LISTED = 10

Ring = tuple[tuple[float, float], ...]
"""Points x, y in pixels of the image, y down; closed, its first point not repeated."""

Box = tuple[float, float, float, float]
"""Left, top, right, bottom in pixels of the image."""

RunLengths = Mapping[str, object]
"""A mask as COCO's compressed run lengths: ``{"size": [height, width], "counts": ...}``."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """The class of an object, and where it is.

    Attributes:
        label: its class.
        box: left, top, right, bottom in pixels; None if only an outline is known.
        rings: outlines in pixels: the four corners of an oriented box, in order, or the outlines of a segment. Labelled
            segments are all polygons together; predicted ones follow the even-odd rule.
    """

    label: str
    box: Box | None = None
    rings: tuple[Ring, ...] | None = None

    @property
    def outlines(self) -> tuple[Ring, ...]:
        """The rings, or else the corners of the box."""
        if self.rings is not None or self.box is None:
            return self.rings or ()
        left, top, right, bottom = self.box
        return (((left, top), (right, top), (right, bottom), (left, bottom)),)


class LabelledObject(Shape, frozen=True, kw_only=True):
    """One labelled object in an image.

    Attributes:
        mask: the pixels of the object, instead of polygons.
        ignored: whether it counts neither as missed nor as wrong: such as COCO's crowds.
        location: the file and the line or element of the label.
    """

    mask: RunLengths | None = None
    ignored: bool = False
    location: str = ""


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """One image, or one recorded question about an image, with its labels.

    Its id is unique in the dataset. Sides are in pixels, 0 if they are unknown. `label` is the class of an image,
    `objects` are for detection and segmentation, and results are sliced by `metadata`.
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
    """Labelled images, with sentences about skipped data.

    `tasks` are those that the labels can measure, the likeliest first. `labels` are its classes, also those without an
    example; empty for answers to questions.
    """

    path: Path
    format: str
    tasks: tuple[TaskType, ...]
    labels: tuple[str, ...] = ()
    items: tuple[Item, ...]
    notes: tuple[str, ...] = ()


class EmptyObjectError(ValueError):
    """An object has no area: no detection can match it."""


@dataclass(slots=True)
class LabelErrors:
    """Collect all errors of labels, so that the user can fix them at once. If `lenient`, they become notes.

    `advice` ends their message.
    """

    lenient: bool = False
    advice: str = "\n--skip-bad leaves them out"
    messages: list[str] = field(default_factory=list[str])
    empty: list[str] = field(default_factory=list[str])

    def add(self, location: str, sentence: str) -> None:
        self.messages.append(f"{location}: {sentence}")

    @contextmanager
    def collected(self, location: str) -> Generator[None]:
        """Collect a `ValueError` about a label, and skip an object without area."""
        try:
            yield
        except EmptyObjectError:
            self.empty.append(location)
        except ValueError as error:
            self.add(location, str(error))

    def notes(self) -> tuple[str, ...]:
        """Return sentences about skipped labels. Raise `EvaluationError` for errors, unless `lenient`."""
        if self.messages and not self.lenient:
            count = len(self.messages)
            title = "1 label or image cannot be used:" if count == 1 else f"{count} labels or images cannot be used:"
            raise EvaluationError("\n  ".join([title, *_shorten(self.messages)]) + self.advice)
        notes = [f"Left out as unusable: {line}" for line in _shorten(self.messages)]
        if self.empty:
            notes.append(f"{len(self.empty)} objects without area were left out: {', '.join(_shorten(self.empty))}")
        return tuple(notes)


def fingerprint(dataset: Dataset) -> str:
    """Return a hash of the images. Corrected labels do not change it."""
    lines = (f"{item.id}\n" for item in dataset.items)
    return hashlib.sha256("".join(lines).encode(errors="surrogatepass")).hexdigest()[:32]


class EvaluationError(Exception):
    """An evaluation failed; the message gives the reason to the user."""


def import_optional(module: str) -> Any:
    """Import `module`, which has no type annotations. Raise `EvaluationError` if its extra is not installed."""
    with needs_extra("charioteer evaluate", "evaluate", EvaluationError):
        return importlib.import_module(module)


def _shorten(lines: Sequence[str]) -> list[str]:
    more = [f"and {len(lines) - _MAX_LISTED} more"] if len(lines) > _MAX_LISTED else []
    return [*lines[:_MAX_LISTED], *more]
