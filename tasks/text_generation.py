"""TEXT_GENERATION: continue a text."""

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

_DEFAULT_TEMPERATURE = 1.0
"""The default of Hugging Face for `do_sample` without a temperature."""


class TextGenerationParameters(SamplingParameters, frozen=True, kw_only=True):
    """Parameters of text generation.

    Attributes:
        do_sample: false sets the temperature to 0; true sets it to 1 unless another is given. By default only the
            temperature decides.
        return_full_text: whether the answer starts with the input text.
    """

    do_sample: bool | None = None
    return_full_text: bool = False


class GeneratedText(msgspec.Struct, frozen=True):
    """The generated text, with the field name of Hugging Face's pipeline."""

    generated_text: str


class Generation(msgspec.Struct, frozen=True, eq=False):
    """The continuation of one text."""

    text: str

    def records(self) -> list[GeneratedText]:
        """Return one `GeneratedText`."""
        return [GeneratedText(self.text)]

    @classmethod
    def stack(cls, predictions: Sequence[Self], /) -> Sequence[Tensor]:
        """Return `generated_text` BYTES [N]."""
        data = np.empty(len(predictions), object)
        data[:] = [prediction.text.encode() for prediction in predictions]
        return (Tensor(name="generated_text", datatype=Datatype.BYTES, data=data),)


class ContinuedText(msgspec.Struct, frozen=True, eq=False):
    """A text and the parameters of its continuation."""

    item: TextItem
    parameters: TextGenerationParameters


TextGenerator = Model[ContinuedText, Generation]


@runtime_checkable
class StreamingGenerator(Protocol):
    """A text generator that can return its continuation in chunks."""

    def stream(self, inputs: Sequence[ContinuedText], /) -> Generator[TextPiece]:
        """Continue `inputs` in order, as its call does. The last chunk of each continuation is marked.

        Raises:
            InferenceError: INVALID_REQUEST for a text that the model cannot use, before any generation.
        """
        ...


class TextGeneration:
    """Return the continuation, with `return_full_text` after the input text."""

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
        groups = text_groups(request, usual, limits, TextGenerationParameters, _resolve_temperature, check)
        count = sum(len(group.items) for group in groups)
        if count > limits.max_prompts:
            message = f"Expected at most {limits.max_prompts} texts in one request, got {count}"
            raise InferenceError(ErrorKind.TOO_LARGE, message, "inputs")
        return groups

    def refine(self, item: ContinuedText, prediction: Generation, /) -> Generation:
        return Generation(item.item.text + prediction.text) if item.parameters.return_full_text else prediction

    def stream(self, items: Sequence[ContinuedText], model: TextGenerator, /) -> Generator[TextPiece]:
        """Continue `items` in chunks; a model that cannot stream returns each continuation in one chunk."""
        pieces = model.stream(items) if isinstance(model, StreamingGenerator) else _single_chunks(items, model)
        return _with_input_texts(items, pieces)

    def gather(self, item: ContinuedText, answers: Sequence[str], /) -> Generation:
        del item
        return Generation("".join(answers))


def _resolve_temperature(item: TextItem, parameters: TextGenerationParameters) -> ContinuedText:
    if parameters.do_sample is False:
        parameters = msgspec.structs.replace(parameters, temperature=0.0)
    elif parameters.do_sample and parameters.temperature == 0:
        parameters = msgspec.structs.replace(parameters, temperature=_DEFAULT_TEMPERATURE)
    return ContinuedText(item, parameters)


def _single_chunks(items: Sequence[ContinuedText], model: TextGenerator) -> Generator[TextPiece]:
    for index, item in enumerate(items):
        (found,) = model([item])
        yield TextPiece(item=index, text=found.text, final=True)


def _with_input_texts(items: Sequence[ContinuedText], pieces: Generator[TextPiece]) -> Generator[TextPiece]:
    current = -1
    try:
        for piece in pieces:
            if piece.item != current:
                current = piece.item
                if items[current].parameters.return_full_text:
                    yield TextPiece(item=current, text=items[current].item.text)
            yield piece
    finally:
        pieces.close()
