"""TEXT_GENERATION: a text continued."""

from collections.abc import Generator, Mapping, Sequence
from typing import Protocol, Self, runtime_checkable

import msgspec
import numpy as np

from tasks.exchange.error import ErrorKind, InferenceError
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import Datatype, Tensor, TensorSpec
from tasks.task import InputGroup, Model, TaskType, TextPiece
from tasks.text.generation import SamplingParameters, check_new_tokens, within_limits
from tasks.text.request import TEXT_INPUT, TextItem, text_groups

__all__ = (
    "ContinuedText",
    "GeneratedText",
    "Generation",
    "StreamingGenerator",
    "TextGeneration",
    "TextGenerationParameters",
    "TextGenerator",
)

_USUAL_TEMPERATURE = 1.0
"""Hugging Face's, for a `do_sample` that comes without one."""


class TextGenerationParameters(SamplingParameters, frozen=True, kw_only=True):
    """How a text is continued.

    Attributes:
        do_sample: false is a temperature of 0, true one of 1 unless another is given; when absent, the temperature
            alone says it.
        return_full_text: whether the text that was sent comes back before its continuation.
    """

    do_sample: bool | None = None
    return_full_text: bool = False


class GeneratedText(msgspec.Struct, frozen=True):
    """What was generated: the field name is that of Hugging Face's pipeline."""

    generated_text: str


class Generation(msgspec.Struct, frozen=True, eq=False):
    """The continuation of one text."""

    text: str

    def records(self) -> list[GeneratedText]:
        """One `GeneratedText`."""
        return [GeneratedText(self.text)]

    @classmethod
    def stack(cls, predictions: Sequence[Self], /) -> Sequence[Tensor]:
        """`generated_text` BYTES [N]."""
        data = np.empty(len(predictions), object)
        data[:] = [each.text.encode() for each in predictions]
        return (Tensor(name="generated_text", datatype=Datatype.BYTES, data=data),)


class ContinuedText(msgspec.Struct, frozen=True, eq=False):
    """A text and how it is to be continued."""

    item: TextItem
    parameters: TextGenerationParameters


TextGenerator = Model[ContinuedText, Generation]


@runtime_checkable
class StreamingGenerator(Protocol):
    """A text generator that can tell its continuation while it makes it."""

    def stream(self, inputs: Sequence[ContinuedText], /) -> Generator[TextPiece]:
        """Continue `inputs` in their order, as its call does, the last piece of each marked.

        Raises:
            InferenceError: INVALID_REQUEST for a text that the model cannot use, before any is continued.
        """
        ...


class TextGeneration:
    """The continuation alone, or behind the text that was sent where `return_full_text` asks for it."""

    task_type = TaskType.TEXT_GENERATION
    parameters_type = TextGenerationParameters
    inputs = (TEXT_INPUT,)
    outputs = (TensorSpec(name="generated_text", datatype=Datatype.BYTES, shape=(-1,)),)

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> Sequence[InputGroup[ContinuedText]]:

        def check(parameters: TextGenerationParameters, path: str) -> None:
            check_new_tokens(parameters, limits, f"{path}.max_new_tokens")

        usual = within_limits(defaults, limits)
        groups = text_groups(request, usual, limits, TextGenerationParameters, _settled, check)
        asked = sum(len(group.items) for group in groups)
        if asked > limits.max_prompts:
            message = f"Expected at most {limits.max_prompts} texts in one request, got {asked}"
            raise InferenceError(ErrorKind.TOO_LARGE, message, "inputs")
        return groups

    def refine(self, item: ContinuedText, prediction: Generation, /) -> Generation:
        return Generation(item.item.text + prediction.text) if item.parameters.return_full_text else prediction

    def stream(self, items: Sequence[ContinuedText], model: TextGenerator, /) -> Generator[TextPiece]:
        """Continue `items` piece by piece; a model that cannot do so gives each continuation in one piece."""
        pieces = model.stream(items) if isinstance(model, StreamingGenerator) else _whole(items, model)
        return _behind_their_texts(items, pieces)

    def gather(self, item: ContinuedText, answers: Sequence[str], /) -> Generation:
        del item
        return Generation("".join(answers))


def _settled(item: TextItem, parameters: TextGenerationParameters) -> ContinuedText:
    if parameters.do_sample is False:
        parameters = msgspec.structs.replace(parameters, temperature=0.0)
    elif parameters.do_sample and parameters.temperature == 0:
        parameters = msgspec.structs.replace(parameters, temperature=_USUAL_TEMPERATURE)
    return ContinuedText(item, parameters)


def _whole(items: Sequence[ContinuedText], model: TextGenerator) -> Generator[TextPiece]:
    for index, item in enumerate(items):
        (found,) = model([item])
        yield TextPiece(item=index, text=found.text, final=True)


def _behind_their_texts(items: Sequence[ContinuedText], pieces: Generator[TextPiece]) -> Generator[TextPiece]:
    begun = -1
    try:
        for piece in pieces:
            if piece.item != begun:
                begun = piece.item
                if items[begun].parameters.return_full_text:
                    yield TextPiece(item=begun, text=items[begun].item.text)
            yield piece
    finally:
        pieces.close()
