"""The interfaces of tasks and models."""

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, Protocol, TypeVar, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import Prediction
from tasks.inference.tensor import TensorSpec

InputKind = Literal["image", "question", "text", "tensor"]
"""What a task takes: an image, an image with questions, a text, or any tensors."""

ResultKind = Literal["classes", "objects", "texts", "tensors"]
"""What a task returns: all classes with the best first, objects in an image, texts, or tensors."""

Geometry = Literal["box", "oriented", "contour"]
"""The shape of an object: the fields of `DetectedObject`, `OrientedObject` or `SegmentedObject` (`tasks.shapes`)."""


ExplainedPart = Literal["pixels", "numbers"]
"""The parts of an input whose importance for a score an explanation measures."""


class _Iterable(type):
    """Iterating over `TaskType` returns the built-in task types."""

    def __iter__(cls) -> "Iterator[TaskType]":
        return iter(_BUILT_IN)


class TaskType(str, metaclass=_Iterable):
    """The task types of the Chariot page with its spelling, text generation, and TENSOR for models without a task.

    Commands, page, export, evaluation, metrics and drift read what a task type takes and returns. Explanations measure
    how important the `explains` of an input are for a score; those of texts only models with a method of their own.

    Each name has one object, which ``TaskType(name)`` returns. It raises ValueError for unknown names. Plugins add
    others (`add`), which iteration leaves out.
    """

    takes: InputKind
    returns: ResultKind
    explains: ExplainedPart | None
    geometry: Geometry | None

    IMAGE_CLASSIFICATION: "ClassVar[TaskType]"
    OBJECT_DETECTION: "ClassVar[TaskType]"
    ORIENTED_OBJECT_DETECTION: "ClassVar[TaskType]"
    IMAGE_SEGMENTATION: "ClassVar[TaskType]"
    IMAGE_TEXT_TO_TEXT: "ClassVar[TaskType]"
    TEXT_GENERATION: "ClassVar[TaskType]"
    TENSOR: "ClassVar[TaskType]"

    def __new__(cls, name: object) -> "TaskType":
        if (task_type := _registered.get(str(name))) is None:
            raise ValueError(f"Invalid task type {str(name)!r}")
        return task_type

    def __reduce__(self) -> tuple[type["TaskType"], tuple[str]]:
        return TaskType, (str(self),)

    @classmethod
    def add(
        cls,
        name: str,
        takes: InputKind,
        returns: ResultKind,
        explains: ExplainedPart | None = None,
        geometry: Geometry | None = None,
    ) -> "TaskType":
        """Add and return the task type of a plugin. Raise ValueError if another one has the name."""
        properties = takes, returns, explains, geometry
        if (existing := _registered.get(name)) is not None:
            found = existing.takes, existing.returns, existing.explains, existing.geometry
            if found == properties and existing not in _BUILT_IN:
                return existing
            raise ValueError(f"the task type {name} exists already")
        added = _registered[name] = str.__new__(cls, name)
        added.takes, added.returns, added.explains, added.geometry = properties
        if returns == "classes":
            BEST_ONLY.add(name)
        if geometry is not None:
            GEOMETRIES[name] = geometry
        return added


BEST_ONLY: set[str] = set()
"""Tasks whose answers contain every class, the best first: statistics count only the best."""

GEOMETRIES: dict[str, Geometry] = {}
"""The geometry of each task type with objects."""

_registered: dict[str, TaskType] = {}

TaskType.IMAGE_CLASSIFICATION = TaskType.add("IMAGE_CLASSIFICATION", "image", "classes", "pixels")
TaskType.OBJECT_DETECTION = TaskType.add("OBJECT_DETECTION", "image", "objects", "pixels", "box")
TaskType.ORIENTED_OBJECT_DETECTION = TaskType.add("ORIENTED_OBJECT_DETECTION", "image", "objects", "pixels", "oriented")
TaskType.IMAGE_SEGMENTATION = TaskType.add("IMAGE_SEGMENTATION", "image", "objects", "pixels", "contour")
TaskType.IMAGE_TEXT_TO_TEXT = TaskType.add("IMAGE_TEXT_TO_TEXT", "question", "texts")
TaskType.TEXT_GENERATION = TaskType.add("TEXT_GENERATION", "text", "texts")
TaskType.TENSOR = TaskType.add("TENSOR", "tensor", "tensors", "numbers")

_BUILT_IN = tuple(_registered.values())


def all_task_types() -> Sequence[TaskType]:
    """Return the built-in task types and the plugins'."""
    return tuple(_registered.values())


def decode_task_type(kind: type[object], value: object) -> object:
    """Return a task type for its name, and the values of other types unchanged: the ``dec_hook`` of msgspec."""
    return TaskType(value) if kind is TaskType else value


InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)
InputT_contra = TypeVar("InputT_contra", contravariant=True)
PredictionT_co = TypeVar("PredictionT_co", bound=Prediction, covariant=True)


class InputGroup(msgspec.Struct, Generic[InputT], frozen=True, kw_only=True, eq=False):
    """The samples of one input of a request. One output, with its name, answers all of them.

    `index` is that of the input in the request; of the first one if the group holds several. `parameters` are those of
    the input, unchanged, and `items` the inputs of the model.
    """

    name: str
    index: int = 0
    parameters: Mapping[str, object]
    items: Sequence[InputT]


class Model(Protocol[InputT_contra, PredictionT_co]):
    """A loaded model: return predictions for a batch, in its order. Called from several threads at once."""

    def __call__(self, inputs: Sequence[InputT_contra], /) -> Sequence[PredictionT_co]: ...


class Task(Protocol[InputT, PredictionT]):
    """Decode requests of one task type into model inputs, and postprocess the predictions."""

    @property
    def task_type(self) -> TaskType: ...

    @property
    def parameters_type(self) -> type[msgspec.Struct]:
        """Return the type of the parameters of its inputs."""
        ...

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """Return the input tensors that tensor protocols report for the model."""
        ...

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """Return the tensors into which predictions are stacked."""
        ...

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> Sequence[InputGroup[InputT]]:
        """Decode every input of `request`, with the `defaults` of the model. Raise InferenceError, naming the field."""
        ...

    def postprocess(self, item: InputT, prediction: PredictionT, /) -> PredictionT:
        """Apply the thresholds, label filter, limits and order of the parameters of `item`."""
        ...


class TokenUsage(msgspec.Struct, frozen=True):
    """The tokens of one prompt, images included, and of its answer so far, including the token that ends it."""

    prompt: int
    completion: int


FinishReason = Literal["stop", "length"]
"""Why an answer ends: at an end token or stop sequence, or at the maximum length."""


class TextChunk(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk of one text answer. The joined chunks equal the answer of a call of the model.

    Attributes:
        item: index of the model's input.
        prompt: index of the prompt of that input.
        final: whether this is the last chunk of the answer.
        usage: the tokens up to this chunk; None if the model does not count them.
        finish: why the answer ends, on its last chunk.
        grounding: what the answer locates in its image, on its last chunk; None for other models.
    """

    item: int
    prompt: int = 0
    text: str
    final: bool = False
    usage: TokenUsage | None = None
    finish: FinishReason = "stop"
    grounding: msgspec.Struct | None = None


class TextPrediction(Prediction, Protocol):
    """A prediction with text answers."""

    def chunks(self, item: int = 0, /) -> Sequence[TextChunk]:
        """Return each answer, as one chunk of the model's input `item`."""
        ...


@runtime_checkable
class StreamingModel(Protocol):
    """A model with text answers that can generate them in chunks."""

    def stream(self, inputs: Sequence[Any], /) -> Generator[TextChunk]:
        """Answer `inputs` in order, as a call of the model does. Mark the last chunk of each answer.

        Called from several threads at once; each result is read from one thread at a time. Raise INVALID_REQUEST for a
        text that the model cannot use, before any input is processed.
        """
        ...


@runtime_checkable
class StreamingTask(Protocol[InputT_contra, PredictionT_co]):
    """A task with text answers that can be generated in chunks."""

    def generate(self, items: Sequence[InputT_contra], model: object, /) -> Generator[TextChunk]:
        """Answer `items` in order, up to their stop sequences. Raise other errors than the model's at once."""
        ...

    def stream(self, items: Sequence[InputT_contra], model: object, /) -> Generator[TextChunk]:
        """Yield the chunks of `generate` with what `postprocess` adds to answers."""
        ...

    def gather(self, item: InputT_contra, answers: Sequence[TextChunk], /) -> PredictionT_co:
        """Return the prediction for `item` from its answers so far, one for each prompt."""
        ...


class ExplainableTask(Protocol[InputT]):
    """A task whose predictions can be explained with changed copies of an image."""

    def targets(self, prediction: Any, filtered: Any, label: str | None, max_objects: int, /) -> Any:
        """Return the K predictions to explain, with `labels` and `scores` by descending score.

        `prediction` comes from the model, `filtered` is the same after `postprocess`. With `label`, only this class is
        explained; `max_objects` limits objects. Raise INVALID_REQUEST, with the path ``label``, if the model has no
        such class.
        """
        ...

    def probe(self, item: InputT, image: Any, targets: Any, /) -> InputT:
        """Return `item` with another image, and parameters that select all that may match a target."""
        ...

    def similarity(self, targets: Any, detected: Any, scale: float, /) -> NDArray[np.float32]:
        """Return (K,) 0..1: the similarity of each target to its best match in `detected`.

        Args:
            targets: in pixels of the original image.
            detected: predictions for the copy, in its pixels.
            scale: size of the copied image relative to the original, 0..1.
        """
        ...


class SelfExplainingModel(Protocol[InputT_contra, PredictionT_co]):
    """A model that explains its own predictions."""

    def explain(self, inputs: Sequence[InputT_contra], /) -> Sequence[tuple[PredictionT_co, Any]]:
        """Return a prediction for each input, and its explanation, which JSON can encode."""
        ...
