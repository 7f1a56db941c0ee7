"""What a task type, and a model of it, have to offer the engine."""

from collections.abc import Generator, Mapping, Sequence
from enum import StrEnum
from typing import Generic, Protocol, TypeVar, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.response import Prediction
from tasks.exchange.tensor import TensorSpec
from tasks.vision.image import Image

__all__ = ("ExplainableTask", "InputGroup", "Model", "StreamingTask", "Task", "TaskType", "TextPiece")


class TaskType(StrEnum):
    """The task types of the Chariot page, spelled as it spells them, those of text, and TENSOR for models without."""

    IMAGE_CLASSIFICATION = "IMAGE_CLASSIFICATION"
    OBJECT_DETECTION = "OBJECT_DETECTION"
    ORIENTED_OBJECT_DETECTION = "ORIENTED_OBJECT_DETECTION"
    IMAGE_SEGMENTATION = "IMAGE_SEGMENTATION"
    IMAGE_TEXT_TO_TEXT = "IMAGE_TEXT_TO_TEXT"
    TEXT_CLASSIFICATION = "TEXT_CLASSIFICATION"
    TOKEN_CLASSIFICATION = "TOKEN_CLASSIFICATION"  # noqa: S105 - a token of text
    TEXT_GENERATION = "TEXT_GENERATION"
    TENSOR = "TENSOR"


InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)
InputT_contra = TypeVar("InputT_contra", contravariant=True)
PredictionT_co = TypeVar("PredictionT_co", bound=Prediction, covariant=True)


class InputGroup(msgspec.Struct, Generic[InputT], frozen=True, kw_only=True, eq=False):
    """The data of one input of a request, all answered in one output.

    Attributes:
        name: the input's name, which its output takes over.
        index: which input of the request it is, the first of them where it is several.
        parameters: the input's own parameters as they came.
        items: what the model is given, one for each datum.
    """

    name: str
    index: int = 0
    parameters: Mapping[str, object]
    items: Sequence[InputT]


class Model(Protocol[InputT_contra, PredictionT_co]):
    """A loaded model: a batch in, a batch of the same length and order out. Called from several threads at once."""

    def __call__(self, inputs: Sequence[InputT_contra], /) -> Sequence[PredictionT_co]: ...


class Task(Protocol[InputT, PredictionT]):
    """How requests of one task type become model inputs, and how answers are narrowed to what was asked for."""

    @property
    def task_type(self) -> TaskType: ...

    @property
    def parameters_type(self) -> type[msgspec.Struct]:
        """The parameters that its inputs may carry."""
        ...

    @property
    def inputs(self) -> Sequence[TensorSpec]:
        """What a protocol of tensors is to be told that the model takes."""
        ...

    @property
    def outputs(self) -> Sequence[TensorSpec]:
        """The tensors into which its predictions are stacked."""
        ...

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> Sequence[InputGroup[InputT]]:
        """Read every input of `request`; `defaults` are the model's own parameters, under the request's.

        Raises:
            InferenceError: INVALID_REQUEST or TOO_LARGE, naming the field.
        """
        ...

    def refine(self, item: InputT, prediction: PredictionT, /) -> PredictionT:
        """Apply the thresholds, label filter, limits and order that `item` asks for."""
        ...


class TextPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A part of one answer in text. Joined, the pieces of an answer are the answer that the model's call gives.

    Attributes:
        item: which of the model's inputs it answers.
        prompt: which prompt of that input.
        text: may be empty.
        final: whether the answer ends with it.
    """

    item: int
    prompt: int = 0
    text: str
    final: bool = False


@runtime_checkable
class StreamingTask(Protocol[InputT_contra, PredictionT_co]):
    """A task whose answers are texts, which can be told while they are made."""

    def stream(self, items: Sequence[InputT_contra], model: object, /) -> Generator[TextPiece]:
        """Answer `items` one after the other with `model`, which is a model of the task.

        What can be refused without the model is refused by the call itself, before the first piece.
        """
        ...

    def gather(self, item: InputT_contra, answers: Sequence[str], /) -> PredictionT_co:
        """The prediction for `item` that consists of these answers, one for each of its prompts that has one yet."""
        ...


@runtime_checkable
class ExplainableTask(Protocol[InputT, PredictionT]):
    """A task of pictures whose findings can be looked for again in a picture of which a part is hidden.

    Its inputs are `tasks.explanation.probe.ImageItem`, its predictions have `labels` and `scores`.
    """

    def targets(self, prediction: PredictionT, refined: PredictionT, label: str | None, most: int, /) -> PredictionT:
        """The findings to explain, K of them, best first.

        Args:
            prediction: as the model gave it.
            refined: what is left of it by what the input asks for.
            label: only findings of this class.
            most: at most so many objects.

        Raises:
            InferenceError: INVALID_REQUEST, about ``label``, when that is none of the model's classes.
        """
        ...

    def probe(self, item: InputT, image: Image, targets: PredictionT, /) -> InputT:
        """`item` with `image` in the place of its own, asking for whatever could be one of `targets`, however faint."""
        ...

    def similarity(self, targets: PredictionT, seen: PredictionT, scale: float, /) -> NDArray[np.float32]:
        """(K,) 0..1: how well each of `targets` is found again in `seen`.

        Args:
            targets: in pixels of the original image.
            seen: in pixels of an image that is `scale` times as large.
            scale: 0..1.
        """
        ...
