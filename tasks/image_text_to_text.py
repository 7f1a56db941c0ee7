"""IMAGE_TEXT_TO_TEXT: questions about a picture, answered in words."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Protocol, Self, runtime_checkable

import msgspec

from tasks.exchange.error import ErrorKind, InferenceError, invalid
from tasks.exchange.limits import Limits, beyond
from tasks.exchange.parameters import TextList, read_parameters
from tasks.exchange.request import InferenceRequest
from tasks.exchange.stacking import counts, stacked_text
from tasks.exchange.tensor import BytesTensor, Datatype, InputTensor, Tensor, TensorSpec
from tasks.task import InputGroup, Model, TaskType, TextPiece
from tasks.text.generation import SamplingParameters, check_new_tokens, within_limits
from tasks.vision.image import Image
from tasks.vision.request import IMAGE_INPUT, PixelBudget, check_count, read_images

__all__ = (
    "DEFAULT_PROMPT",
    "Answer",
    "Answers",
    "GenerationParameters",
    "ImageTextToText",
    "PromptedImage",
    "StreamingModel",
    "VisionLanguageModel",
    "stripped",
)

DEFAULT_PROMPT = "What is in the picture?"
"""Asked when neither the request nor the model's settings name a prompt."""

_TEXT_INPUT_NAMES = frozenset({"prompt", "prompts", "question", "text"})


class GenerationParameters(SamplingParameters, frozen=True, kw_only=True):
    """What is asked, and how answers are generated.

    Attributes:
        prompts: the questions; one answer each.
    """

    prompts: TextList | None = None


class Answer(msgspec.Struct, frozen=True):
    """One prompt and what the model said to it."""

    prompt: str
    answer: str


class Answers(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What was said about one image: `answers[i]` to `prompts[i]`."""

    prompts: Sequence[str]
    answers: Sequence[str]

    def records(self) -> list[Answer]:
        """One `Answer` for each prompt, in the order they were put."""
        return [Answer(prompt, answer) for prompt, answer in zip(self.prompts, self.answers, strict=True)]

    @classmethod
    def stack(cls, predictions: Sequence[Self], /) -> Sequence[Tensor]:
        """`num_prompts` INT32 [N], `prompts` BYTES [N, P], `answers` BYTES [N, P]."""
        return (
            counts("num_prompts", [each.prompts for each in predictions]),
            stacked_text("prompts", [each.prompts for each in predictions]),
            stacked_text("answers", [each.answers for each in predictions]),
        )


class PromptedImage(msgspec.Struct, frozen=True, eq=False):
    """An image and the prompts put to it.

    Attributes:
        image: what is asked about.
        prompts: at least one.
        parameters: how the answers are generated.
        path: where the prompts stand in the request, for a model that cannot use one of them.
    """

    image: Image
    prompts: Sequence[str]
    parameters: GenerationParameters
    path: str = "prompts"


VisionLanguageModel = Model[PromptedImage, Answers]


@runtime_checkable
class StreamingModel(Protocol):
    """A vision-language model that can tell an answer while it makes it."""

    def stream(self, inputs: Sequence[PromptedImage], /) -> Generator[TextPiece]:
        """Answer `inputs` and their prompts in their order, as its call does, the last piece of each answer marked.

        Called from several threads at once; what it returns is read from one thread at a time.

        Raises:
            InferenceError: INVALID_REQUEST for a prompt that the model cannot use, before any picture is looked at.
        """
        ...


class ImageTextToText:
    """Prompts come as the `prompts` parameter of an image, or as text inputs, put to every image without its own.

    A text input is a BYTES input with `content_type: str`, or one named prompt, prompts, question or text. It has no
    output of its own.
    """

    task_type = TaskType.IMAGE_TEXT_TO_TEXT
    parameters_type = GenerationParameters
    inputs = (IMAGE_INPUT,)
    outputs = (
        TensorSpec(name="num_prompts", datatype=Datatype.INT32, shape=(-1,)),
        TensorSpec(name="prompts", datatype=Datatype.BYTES, shape=(-1, -1)),
        TensorSpec(name="answers", datatype=Datatype.BYTES, shape=(-1, -1)),
    )

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> Sequence[InputGroup[PromptedImage]]:
        check_count(request.inputs, limits)
        texts = tuple(_texts(request))
        budget, asked, usual = PixelBudget(limits), 0, within_limits(defaults, limits)
        groups: list[InputGroup[PromptedImage]] = []
        for index, tensor in enumerate(request.inputs):
            if _is_text(tensor):
                continue
            path = f"inputs[{index}]"
            parameters = read_parameters(
                GenerationParameters, usual, request.parameters, tensor.parameters, path=f"{path}.parameters"
            )
            own = tensor.parameters.get("prompts") is not None or not texts
            prompts = (parameters.prompts if own else texts) or (DEFAULT_PROMPT,)
            check_new_tokens(parameters, limits, f"{path}.parameters.max_new_tokens")
            where = f"{path}.parameters.prompts"
            _check_lengths(prompts, limits, where)
            images = read_images(tensor, budget, path)
            asked += len(images) * len(prompts)
            if asked > limits.max_prompts:
                message = f"Expected at most {limits.max_prompts} prompts in one request, got {asked} up to here"
                raise InferenceError(ErrorKind.TOO_LARGE, message, where)
            items = [PromptedImage(image, prompts, parameters, where) for image in images]
            groups.append(InputGroup(name=tensor.name, index=index, parameters=tensor.parameters, items=items))
        if not groups:
            raise invalid("Expected an image among the inputs, got texts only", "inputs")
        return groups

    def refine(self, item: PromptedImage, prediction: Answers, /) -> Answers:
        del item
        return prediction

    def stream(self, items: Sequence[PromptedImage], model: VisionLanguageModel, /) -> Generator[TextPiece]:
        """Answer `items` piece by piece; a model that cannot do so gives each answer in one piece."""
        return model.stream(items) if isinstance(model, StreamingModel) else _whole_answers(items, model)

    def gather(self, item: PromptedImage, answers: Sequence[str], /) -> Answers:
        return Answers(prompts=item.prompts[: len(answers)], answers=answers)


def stripped(pieces: Iterable[str]) -> Iterator[str]:
    """`pieces` without the white space around the whole: joined, what `str.strip` leaves of the joined `pieces`.

    White space is held back until something follows it; no piece is empty.
    """
    held = ""
    begun = False
    for piece in pieces:
        text = held + piece if begun else piece.lstrip()
        kept = text.rstrip()
        held = text[len(kept) :]
        if kept:
            begun = True
            yield kept


def _whole_answers(items: Sequence[PromptedImage], model: VisionLanguageModel) -> Generator[TextPiece]:
    for index, item in enumerate(items):
        (found,) = model([item])
        for prompt, answer in zip(range(len(item.prompts)), found.answers, strict=True):
            yield TextPiece(item=index, prompt=prompt, text=answer, final=True)


def _check_lengths(prompts: Sequence[str], limits: Limits, path: str) -> None:
    for index, prompt in enumerate(prompts):
        if len(prompt) > limits.max_text_length:
            raise beyond(limits.max_text_length, "characters in one prompt", len(prompt), f"{path}[{index}]")


def _is_text(tensor: InputTensor) -> bool:
    if not isinstance(tensor, BytesTensor):
        return False
    return tensor.parameters.get("content_type") == "str" or tensor.name.lower() in _TEXT_INPUT_NAMES


def _texts(request: InferenceRequest) -> Sequence[str]:
    found: list[str] = []
    for index, tensor in enumerate(request.inputs):
        if not _is_text(tensor) or not isinstance(tensor, BytesTensor):
            continue
        for position, element in enumerate(tensor.elements):
            try:
                found.append(element.text())
            except InferenceError as error:
                raise error.under(f"inputs[{index}].data[{position}]") from None
    return found
