"""IMAGE_TEXT_TO_TEXT: answer prompts about an image with text."""

from collections.abc import Generator, Mapping, Sequence
from typing import Self

import msgspec

from tasks.image_segmentation import SegmentedObject
from tasks.inference.error import invalid
from tasks.inference.limits import Limits, check_text, too_large
from tasks.inference.request import InferenceRequest, TextList, read_parameters
from tasks.inference.tensor import BytesTensor, Datatype, Tensor, TensorSpec, count_tensor, stack_text
from tasks.object_detection import DetectedObject
from tasks.task import FinishReason, InputGroup, Model, TaskType, TextChunk, TokenUsage
from tasks.text.generation import (
    Message,
    MessagePart,
    SamplingParameters,
    check_messages,
    check_sampling,
    image_count,
    read_texts,
    within_limits,
)
from tasks.text.stopping import cut, generate
from tasks.vision.image import Image
from tasks.vision.request import IMAGE_INPUT, PixelBudget, check_count, read_images

DEFAULT_PROMPT = "What is in the picture?"
"""The prompt if neither the request nor the model's settings have one."""

_TEXT_INPUT_NAMES = frozenset({"prompt", "prompts", "question", "text"})


class GenerationParameters(SamplingParameters, frozen=True, kw_only=True):
    """The prompts, and how answers are generated.

    Attributes:
        prompts: prompts with one answer each.
    """

    prompts: TextList | None = None


class Answer(msgspec.Struct, frozen=True):
    """One prompt and its answer."""

    prompt: str
    answer: str


class LocatedPoint(msgspec.Struct, frozen=True):
    """One point: pixels of the upright original image, x to the right, y down."""

    label: str
    score: float
    x: float
    y: float


LocatedObject = DetectedObject | SegmentedObject | LocatedPoint


class Grounding(msgspec.Struct, frozen=True):
    """What an answer locates in its image: boxes, polygons and points in pixels of the upright original image.

    `note` says how many printed places could not be read; "" if all were.
    """

    objects: Sequence[LocatedObject]
    note: str = ""


class GroundedAnswer(Answer, frozen=True):
    """One prompt, its answer, and what the answer locates."""

    grounding: msgspec.Struct


class Answers(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The answers about one image: `answers[i]` to `prompts[i]`.

    `usage` counts the tokens of each prompt and answer; None if the runtime does not know them. `finish` says
    why each answer ends; None if all end with "stop". `grounding` is a `Grounding` for each answer of a model that
    locates objects.
    """

    prompts: Sequence[str]
    answers: Sequence[str]
    usage: Sequence[TokenUsage | None] | None = None
    finish: Sequence[FinishReason] | None = None
    grounding: Sequence[msgspec.Struct | None] | None = None

    def records(self) -> list[Answer]:
        """Return one `Answer` for each prompt, in order; a `GroundedAnswer` if it has a grounding."""
        rows = zip(self.prompts, self.answers, self._groundings, strict=True)
        return [
            Answer(prompt, answer) if grounding is None else GroundedAnswer(prompt, answer, grounding)
            for prompt, answer, grounding in rows
        ]

    @property
    def _groundings(self) -> Sequence[msgspec.Struct | None]:
        return self.grounding or [None] * len(self.answers)

    def chunks(self, item: int = 0, /) -> list[TextChunk]:
        """Return each answer, as one chunk of the model's input `item`."""
        finish: Sequence[FinishReason] = self.finish or ["stop" for _ in self.answers]
        rows = zip(self.answers, self.usage or [None] * len(self.answers), finish, self._groundings, strict=True)
        return [
            TextChunk(
                item=item, prompt=prompt, text=answer, final=True, usage=usage, finish=reason, grounding=grounding
            )
            for prompt, (answer, usage, reason, grounding) in enumerate(rows)
        ]

    @classmethod
    def stack(cls, predictions: Sequence[Self], /) -> Sequence[Tensor]:
        """Return `num_prompts` INT32 [N], `prompts` BYTES [N, P], `answers` BYTES [N, P].

        Models that locate objects add `grounding` (JSON) BYTES [N, P].
        """
        prompts = [prediction.prompts for prediction in predictions]
        groundings = [
            ["" if found is None else msgspec.json.encode(found).decode() for found in prediction._groundings]
            for prediction in predictions
        ]
        return (
            count_tensor("num_prompts", prompts),
            stack_text("prompts", prompts),
            stack_text("answers", [prediction.answers for prediction in predictions]),
            *([stack_text("grounding", groundings)] if any(map(any, groundings)) else ()),
        )


class PromptedImage(msgspec.Struct, frozen=True, eq=False):
    """An image and its prompts, or a conversation about any number of images.

    The messages of a conversation are in `parameters`, and its last question is the only prompt; it may have no images.
    `path` leads to the prompts, or the messages, in the request, for error messages.
    """

    images: Sequence[Image]
    prompts: Sequence[str]
    parameters: GenerationParameters
    path: str = "prompts"

    @property
    def image(self) -> Image:
        """The first image. Raise INVALID_REQUEST for a conversation without images."""
        if not self.images:
            raise invalid("Expected an image: this model answers no question without one", self.path)
        return self.images[0]


VisionLanguageModel = Model[PromptedImage, Answers]


class ImageTextToText:
    """Prompts are the `prompts` parameter of an image, or text inputs that apply to every image without its own.

    A text input is a BYTES input with `content_type: str`, or with the name prompt, prompts, question or text. It has
    no output. `grounded` is whether the model locates objects.
    """

    task_type = TaskType.IMAGE_TEXT_TO_TEXT
    parameters_type = GenerationParameters
    inputs = (IMAGE_INPUT,)
    outputs: Sequence[TensorSpec] = (
        TensorSpec(name="num_prompts", datatype=Datatype.INT32, shape=(-1,)),
        TensorSpec(name="prompts", datatype=Datatype.BYTES, shape=(-1, -1)),
        TensorSpec(name="answers", datatype=Datatype.BYTES, shape=(-1, -1)),
    )

    def __init__(self, *, grounded: bool = False) -> None:
        if grounded:
            self.outputs = (*self.outputs, TensorSpec(name="grounding", datatype=Datatype.BYTES, shape=(-1, -1)))

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> Sequence[InputGroup[PromptedImage]]:
        check_count(request.inputs, limits)
        texts = tuple(_texts(request))
        budget, prompt_count, bounded_defaults = PixelBudget(limits), 0, within_limits(defaults, limits)
        groups: list[InputGroup[PromptedImage]] = []
        for index, tensor in enumerate(request.inputs):
            if _is_text(request, index):
                continue
            path = f"inputs[{index}]"
            parameters = read_parameters(
                GenerationParameters, bounded_defaults, request.parameters, tensor.parameters, path=f"{path}.parameters"
            )
            has_own_prompts = tensor.parameters.get("prompts") is not None or not texts
            prompts = (parameters.prompts if has_own_prompts else texts) or (DEFAULT_PROMPT,)
            if parameters.messages is not None:
                prompts = ()
            check_sampling(parameters, limits, f"{path}.parameters")
            prompts_path = f"{path}.parameters.prompts"
            for position, prompt in enumerate(prompts):
                check_text(prompt, limits, f"{prompts_path}[{position}]", "prompt")
            is_text_alone = parameters.messages is not None and isinstance(tensor, BytesTensor) and not tensor.elements
            images = [] if is_text_alone else read_images(tensor, budget, path)
            prompt_count += len(images) * len(prompts)
            if prompt_count > limits.max_prompts:
                raise too_large(limits.max_prompts, "prompts in a request (--max-prompts)", prompt_count, prompts_path)
            if parameters.messages is not None:
                items = [_conversation(images, parameters, limits, f"{path}.parameters.messages")]
            else:
                items = [PromptedImage((image,), prompts, parameters, prompts_path) for image in images]
            groups.append(
                InputGroup(name=tensor.name, index=index, parameters=request.parameters_of(index), items=items)
            )
        if not groups:
            raise invalid("Expected an image among the inputs, got texts only", "inputs")
        return groups

    def postprocess(self, item: PromptedImage, prediction: Answers, /) -> Answers:
        stop = item.parameters.stop
        return self.gather(item, [cut(answer, stop) for answer in prediction.chunks()]) if stop else prediction

    def generate(self, items: Sequence[PromptedImage], model: VisionLanguageModel, /) -> Generator[TextChunk]:
        return generate(items, model, len(items[-1].prompts) - 1)

    def stream(self, items: Sequence[PromptedImage], model: VisionLanguageModel, /) -> Generator[TextChunk]:
        return self.generate(items, model)

    def gather(self, item: PromptedImage, answers: Sequence[TextChunk], /) -> Answers:
        return Answers(
            prompts=item.prompts[: len(answers)],
            answers=[answer.text for answer in answers],
            usage=[answer.usage for answer in answers],
            finish=[answer.finish for answer in answers],
            grounding=[answer.grounding for answer in answers],
        )


def _conversation(
    images: Sequence[Image], parameters: GenerationParameters, limits: Limits, path: str
) -> PromptedImage:
    messages = tuple(parameters.messages or ())
    check_messages(messages, len(images), limits, path)
    prompt = messages[-1].text
    if image_count(messages[-1:]) and not prompt.strip():
        prompt = (parameters.prompts or (DEFAULT_PROMPT,))[0]
        asked = MessagePart(type="text", text=prompt)
        last = Message("user", (*(part for part in messages[-1].content if part.type == "image"), asked))
        parameters = msgspec.structs.replace(parameters, messages=(*messages[:-1], last))
    if len(messages) == 1 and len(images) == 1:
        # Every model answers one question about one image.
        parameters = msgspec.structs.replace(parameters, messages=None)
    return PromptedImage(tuple(images), (prompt,), parameters, path)


def _is_text(request: InferenceRequest, index: int) -> bool:
    tensor = request.inputs[index]
    if not isinstance(tensor, BytesTensor):
        return False
    return request.parameter(index, "content_type") == "str" or tensor.name.lower() in _TEXT_INPUT_NAMES


def _texts(request: InferenceRequest) -> Sequence[str]:
    texts: list[str] = []
    for index, tensor in enumerate(request.inputs):
        if isinstance(tensor, BytesTensor) and _is_text(request, index):
            texts += read_texts(tensor, f"inputs[{index}].data")
    return texts
