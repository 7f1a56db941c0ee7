"""What a layout of outputs is, and what it is shown of a graph to recognise itself.

In this package b is the batch, nc the number of classes, N the number of candidates or queries, M the number of
detections a graph gives at most, nm the number of mask coefficients.
"""

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.engine.description import Fact, Origin
from app.runtimes.onnxruntime.conventions import NO_CONVENTIONS, Conventions
from app.runtimes.onnxruntime.evidence import Evidence
from app.runtimes.onnxruntime.graph import RawAnswer
from app.runtimes.onnxruntime.heads.candidates import Candidates
from app.runtimes.onnxruntime.inputs import ImageInputs
from tasks.image_segmentation import SegmentationInput
from tasks.object_detection import DetectionParameters
from tasks.task import TaskType
from tasks.vision.contours import Contour

__all__ = (
    "Certainty",
    "Layout",
    "Match",
    "Outline",
    "Output",
    "Reading",
    "ReadsBoxes",
    "ReadsClasses",
    "ReadsMasks",
    "ReadsText",
    "ReadsTurnedBoxes",
    "View",
    "shown",
)


class Output(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One output of a graph: its name, and what it gave for a black picture, whose shape holds for every picture."""

    name: str
    blank: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """With the batch."""
        return self.blank.shape

    @property
    def is_float(self) -> bool:
        """Whether it holds floating-point numbers."""
        return self.blank.dtype.kind == "f"


class View(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is known of a graph when its layout is looked for.

    Attributes:
        inputs: of the graph.
        outputs: in the graph's order.
        evidence: the model's files.
        told: what the model does, where its files say so.
        classes: how many labels the files list, None when they list none.
    """

    inputs: ImageInputs
    outputs: Sequence[Output]
    evidence: Evidence
    told: TaskType | None
    classes: int | None

    @property
    def declared(self) -> str | None:
        """The layout that the owner declares."""
        return self.evidence.settings.layout

    def named(self, *names: str) -> list[Output] | None:
        """The outputs of these names, or None unless all are there."""
        found = {output.name: output for output in self.outputs}
        return [found[name] for name in names] if all(name in found for name in names) else None


class Outline(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is outlined in one picture.

    Attributes:
        class_ids: (n,) class numbers.
        scores: (n,) float32, 0..1.
        contours: for each object, its contours in pixels of the image (`tasks.vision.contours`).
    """

    class_ids: NDArray[np.intp]
    scores: NDArray[np.float32]
    contours: Sequence[Sequence[Contour]]


class ReadsClasses(msgspec.Struct, frozen=True):
    """For IMAGE_CLASSIFICATION: one picture's (nc,) probabilities."""

    scores: Callable[[RawAnswer], NDArray[np.float32]]


class ReadsBoxes(msgspec.Struct, frozen=True):
    """For OBJECT_DETECTION: one picture's objects without duplicates, boxes (n, 4) xyxy in input pixels."""

    find: Callable[[RawAnswer, DetectionParameters], Candidates]


class ReadsTurnedBoxes(msgspec.Struct, frozen=True):
    """For ORIENTED_OBJECT_DETECTION: the same, boxes (n, 5) cx, cy, w, h, r; r in radians, clockwise with y down."""

    find: Callable[[RawAnswer, DetectionParameters], Candidates]


class ReadsMasks(msgspec.Struct, frozen=True):
    """For IMAGE_SEGMENTATION: one picture's objects and their contours."""

    outline: Callable[[RawAnswer, SegmentationInput], Outline]


class ReadsText(msgspec.Struct, frozen=True):
    """For IMAGE_TEXT_TO_TEXT: the text in one picture."""

    read: Callable[[RawAnswer], str]


Reading = ReadsClasses | ReadsBoxes | ReadsTurnedBoxes | ReadsMasks | ReadsText


class Certainty(IntEnum):
    """How much a layout knows when it recognises itself. The surest match is taken; two as sure are refused."""

    SHAPES = 1
    """Only the shapes of the outputs fit."""

    NAMES = 2
    """The names of inputs and outputs, or what the files say, are those of one exporter."""


class Match(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A layout recognised.

    Attributes:
        layout: its name.
        task_type: what the model does.
        reading: how its outputs are read.
        outputs: the outputs that are read, in the order in which the reading wants them.
        certainty: how sure that is.
        origin: where the layout was found.
        task_origin: where the task was found, unless the files say what it is.
        classes: how many labels the outputs need, None when that is not in their shapes.
        names: labels of every model of this layout, when the files list none.
        conventions: how its pictures are prepared.
        facts: what else a reader should know.
    """

    layout: str
    task_type: TaskType
    reading: Reading
    outputs: Sequence[Output]
    certainty: Certainty = Certainty.SHAPES
    origin: Origin = Origin.SHAPES
    task_origin: Origin = Origin.SHAPES
    classes: int | None = None
    names: tuple[str, ...] = ()
    conventions: Conventions = NO_CONVENTIONS
    facts: Sequence[Fact] = ()


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """One family of layouts.

    Attributes:
        names: those that ``layout`` in model-settings.json may have.
        task_types: what its models can do.
        wants: its outputs, for the owner of a graph that has others.
        recognise: a match, or None for a graph of another layout. It heeds a declared layout among `names`.
    """

    names: tuple[str, ...]
    task_types: tuple[TaskType, ...]
    wants: str
    recognise: Callable[[View], Match | None]


def shown(outputs: Sequence[Output]) -> str:
    """Outputs as errors and facts name them."""
    return " and ".join(f"{output.name} {list(output.shape)}" for output in outputs)
