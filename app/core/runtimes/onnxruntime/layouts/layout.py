"""The interface of output layouts: recognise a graph, and decode its outputs.

In this package b is the batch, nc the number of classes, N the number of candidates or queries, M the maximum number of
detections, and nm the number of mask coefficients.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.runtimes.onnxruntime.files.metadata import ExportMetadata
from app.core.runtimes.onnxruntime.files.model_files import ModelFiles
from app.core.runtimes.onnxruntime.graph import ImageGraph, ImageInputs
from app.core.runtimes.onnxruntime.images.preprocessing import NO_PREPROCESSING, PartialPreprocessing
from app.core.runtimes.onnxruntime.session import GraphSession
from app.core.settings.model import ModelSource
from metadata.model import Fact, Origin
from tasks.task import Model, Task, TaskType
from tasks.vision.contours import Contour

_SUM_TOLERANCE = 1e-3
FEATURES = re.compile(r"(^|[._/])(embed(ding)?s?|features?|feats?|pooler_output)([._/:]|$)")
"""Names, in lower case, of outputs that are vectors for comparisons, not scores of classes."""
_MAPS = re.compile(r"depth|disp(arity)?([._/:]|$)|hidden")
_MAX_LINE_HEIGHT = 64
"""Pixels. Text recognisers take images of one line, which are low and wide."""


class GraphOutput(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One output of a graph, and its value for a black image. The shape is the same for every image."""

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


class GraphView(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The information from which layouts recognise a graph.

    `outputs` are in the graph's order, for a black image of `size` (height, width). `classes` is the number of labels
    in the files; None if they list none.
    """

    inputs: ImageInputs
    outputs: Sequence[GraphOutput]
    model_files: ModelFiles
    classes: int | None
    size: tuple[int, int]

    @property
    def declared_task(self) -> TaskType | None:
        """Return the model's task, if the settings or files declare it."""
        return self.model_files.declared_task()[0]

    @property
    def declared_layout(self) -> str | None:
        """Return the layout in the settings, if any."""
        return self.model_files.settings.layout

    def outputs_named(self, *names: str) -> list[GraphOutput] | None:
        """Return the outputs with these names, or None if one is missing."""
        by_name = {output.name: output for output in self.outputs}
        return [by_name[name] for name in names] if all(name in by_name for name in names) else None


class RawSegments(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The segmented objects of one image.

    Attributes:
        class_ids: (n,) class numbers.
        scores: (n,) float32 in 0..1.
        contours: contours of each object in image pixels (`tasks.vision.contours`).
        pixel_scores: as in `Segments`.
    """

    class_ids: NDArray[np.intp]
    scores: NDArray[np.float32]
    contours: Sequence[Sequence[Contour]]
    pixel_scores: NDArray[np.float32] | None = None


Bound = tuple[Task[Any, Any], Model[Any, Any], Any]
"""A task, its model, and an input with a blank image."""

Head = Callable[[ImageGraph, "Match", Sequence[str]], Bound]
"""Binds a graph to its task. The last argument are the labels."""


class Match(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A recognised layout.

    `decode` takes the `RawOutputs` of one image. Its other argument and its result depend on the task:

    - IMAGE_CLASSIFICATION: no other argument; the (nc,) probabilities.
    - OBJECT_DETECTION: as `FindObjects` of `layouts.candidates`; boxes are (n, 4) xyxy in input pixels.
    - ORIENTED_OBJECT_DETECTION: the same, but boxes are (n, 5) cx, cy, w, h, r; r in radians, clockwise with y down.
    - IMAGE_SEGMENTATION: a `SegmentationInput`; an `RawSegments`.
    - IMAGE_TEXT_TO_TEXT: no other argument; the text in the image.
    - TENSOR: not called; the outputs are returned unchanged.

    Attributes:
        outputs: the decoded outputs, in the order that `decode` expects.
        keypoints: number of keypoints of each object in `extras`, and of numbers for each: x and y in input pixels,
            and the visibility; None without.
        unbatched: whether the outputs have no batch dimension, so that the graph takes one image at a time.
        by_names: whether names or files identify one exporter, which precedes a match of the shapes alone.
        task_origin: origin of the task, unless the files declare it.
        head: binds the graph to its task, if core has no head for the task; `decode` then takes what the head passes.
        classes: number of labels that the outputs need; None if their shapes do not show it.
        names: default labels of this layout.
        preprocessing: of the images, unless the settings or files declare it.
        parameters: default request parameters, unless the settings declare them.
        question: why the outputs have several readings, and what to declare; "" if one reading remains. The model is
            then rejected, unless another layout matches.
    """

    layout: str
    task_type: TaskType
    outputs: Sequence[GraphOutput]
    decode: Callable[..., Any] = attrgetter("outputs")
    keypoints: tuple[int, int] | None = None
    unbatched: bool = False
    by_names: bool = False
    origin: Origin = Origin.SHAPES
    task_origin: Origin = Origin.SHAPES
    head: Head | None = None
    classes: int | None = None
    names: tuple[str, ...] = ()
    preprocessing: PartialPreprocessing = NO_PREPROCESSING
    parameters: Mapping[str, object] = {}
    facts: Sequence[Fact] = ()
    question: str = ""


class Layout(msgspec.Struct, frozen=True):
    """A family of layouts, whose `names` are values of ``layout`` in model-settings.json.

    `recognise` returns a match, or None for other layouts. It respects a declared layout among `names`.
    `describe` reads what its exporter wrote into the graph or beside it, instead of other metadata and files.
    """

    names: tuple[str, ...]
    task_types: tuple[TaskType, ...]
    expected_outputs: str
    recognise: Callable[[GraphView], Match | None]
    describe: Callable[[ModelSource, GraphSession], ExportMetadata | None] = lambda _, __: None


def sigmoid(logits: NDArray[Any]) -> NDArray[np.float32]:
    """Convert logits to probabilities with tanh, which does not overflow as exp does."""
    return (np.tanh(logits.astype(np.float32, copy=False) * np.float32(0.5)) + np.float32(1)) * np.float32(0.5)


def softmax(logits: NDArray[np.float32], axis: int = 0) -> NDArray[np.float32]:
    """Convert logits to probabilities along an axis. Subtract the maximum first to avoid an overflow."""
    powers = np.exp(logits - logits.max(axis, keepdims=True))
    return powers / powers.sum(axis, keepdims=True)


def are_probabilities(blank: NDArray[np.floating[Any]]) -> bool:
    """Return whether the values of an output [b, nc, ...] sum to 1 over the classes."""
    values = blank.astype(np.float64)
    return bool((values >= 0).all() and (np.abs(values.sum(axis=1) - 1) <= _SUM_TOLERANCE).all())


def takes_text_lines(inputs: ImageInputs) -> bool:
    """Return whether the input has the shape of a line of text."""
    height, width = inputs.sides
    return 0 < height <= _MAX_LINE_HEIGHT and (width == -1 or width >= 2 * height)


def is_map_or_features(output: GraphOutput, inputs: ImageInputs) -> bool:
    """Return whether the name or the shape of an output stands for features or for a map [b, h, w] of the image."""
    name, (height, width) = output.name.lower(), inputs.sides
    if FEATURES.search(name) or _MAPS.search(name):
        return True
    if output.blank.ndim != 3:
        return False
    _, rows, columns = output.shape
    return rows == columns or (height > 0 and width > 0 and rows * width == columns * height)


def format_outputs(outputs: Sequence[GraphOutput]) -> str:
    """Format outputs for errors and facts."""
    return " and ".join(f"{output.name} {list(output.shape)}" for output in outputs)
