"""The interface of output layouts: recognise a graph, and decode its outputs.

In this package b is the batch, nc the number of classes, N the number of candidates or queries, M the maximum number of
detections, and nm the number of mask coefficients.
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
    """One output of a graph.

    Attributes:
        name: its name.
        blank: its value for a black image. The shape is the same for every image.
    """

    name: str
    blank: NDArray[Any]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape, including the batch."""
        return self.blank.shape

    @property
    def is_float(self) -> bool:
        """Return whether the output is floating-point."""
        return self.blank.dtype.kind == "f"


class View(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The information from which layouts recognise a graph.

    Attributes:
        inputs: inputs of the graph.
        outputs: outputs in the graph's order.
        evidence: the model's files.
        told: the model's task, if the files declare it.
        classes: number of labels in the files; None if they list none.
    """

    inputs: ImageInputs
    outputs: Sequence[Output]
    evidence: Evidence
    told: TaskType | None
    classes: int | None

    @property
    def declared(self) -> str | None:
        """Return the layout in the settings, if any."""
        return self.evidence.settings.layout

    def named(self, *names: str) -> list[Output] | None:
        """Return the outputs with these names, or None if one is missing."""
        found = {output.name: output for output in self.outputs}
        return [found[name] for name in names] if all(name in found for name in names) else None


class Outline(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The segmented objects of one image.

    Attributes:
        class_ids: (n,) class numbers.
        scores: (n,) float32 in 0..1.
        contours: contours of each object in image pixels (`tasks.vision.contours`).
    """

    class_ids: NDArray[np.intp]
    scores: NDArray[np.float32]
    contours: Sequence[Sequence[Contour]]


class ReadsClasses(msgspec.Struct, frozen=True):
    """For IMAGE_CLASSIFICATION: returns the (nc,) probabilities of one image."""

    scores: Callable[[RawAnswer], NDArray[np.float32]]


class ReadsBoxes(msgspec.Struct, frozen=True):
    """For OBJECT_DETECTION: returns the objects of one image after suppression; boxes (n, 4) xyxy in input pixels."""

    find: Callable[[RawAnswer, DetectionParameters], Candidates]


class ReadsTurnedBoxes(msgspec.Struct, frozen=True):
    """For ORIENTED_OBJECT_DETECTION: returns the objects of one image after suppression.

    Boxes are (n, 5) cx, cy, w, h, r in input pixels; r in radians, clockwise with y down.
    """

    find: Callable[[RawAnswer, DetectionParameters], Candidates]


class ReadsMasks(msgspec.Struct, frozen=True):
    """For IMAGE_SEGMENTATION: returns the objects of one image with their contours."""

    outline: Callable[[RawAnswer, SegmentationInput], Outline]


class ReadsText(msgspec.Struct, frozen=True):
    """For IMAGE_TEXT_TO_TEXT: returns the text in one image."""

    read: Callable[[RawAnswer], str]


Reading = ReadsClasses | ReadsBoxes | ReadsTurnedBoxes | ReadsMasks | ReadsText


class Certainty(IntEnum):
    """The certainty of a match. The highest one wins; a tie is an error."""

    SHAPES = 1
    """Only the shapes of the outputs match."""

    NAMES = 2
    """The names of inputs and outputs, or the files, identify one exporter."""


class Match(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A recognised layout.

    Attributes:
        layout: name of the layout.
        task_type: the model's task.
        reading: decodes the outputs.
        outputs: the decoded outputs, in the order that the decoder expects.
        certainty: certainty of the match.
        origin: origin of the layout.
        task_origin: origin of the task, unless the files declare it.
        classes: number of labels that the outputs need; None if their shapes do not show it.
        names: default labels of this layout.
        conventions: default preprocessing.
        facts: further facts for the description.
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
    """A family of layouts.

    Attributes:
        names: values of ``layout`` in model-settings.json.
        task_types: tasks of its models.
        wants: expected outputs, for error messages.
        recognise: returns a match, or None for other layouts. It respects a declared layout among `names`.
    """

    names: tuple[str, ...]
    task_types: tuple[TaskType, ...]
    wants: str
    recognise: Callable[[View], Match | None]


def shown(outputs: Sequence[Output]) -> str:
    """Format outputs for errors and facts."""
    return " and ".join(f"{output.name} {list(output.shape)}" for output in outputs)
