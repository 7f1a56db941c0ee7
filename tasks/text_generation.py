"""TEXT_GENERATION: continue a text."""

from collections.abc import Generator, Mapping, Sequence
from typing import Self

import msgspec
import numpy as np

from tasks.inference.limits import Limits, too_large
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import Datatype, Tensor, TensorSpec
from tasks.task import FinishReason, InputGroup, Model, TaskType, TextChunk, TokenUsage
from tasks.text.generation import SamplingParameters, check_messages, check_sampling, within_limits
from tasks.text.request import TEXT_INPUT, TextInput, text_groups
from tasks.text.stopping import cut, generate

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
    """The continuation of one text, and why it ends.

    `usage` has the counts of its tokens and the prompt's; None if not known.
    """

    text: str
    usage: TokenUsage | None = None
    finish: FinishReason = "stop"

    def records(self) -> list[GeneratedText]:
        """Return one `GeneratedText`."""
        return [GeneratedText(self.text)]

    def chunks(self, item: int = 0, /) -> list[TextChunk]:
        """Return the text, as one chunk of the model's input `item`."""
        return [TextChunk(item=item, text=self.text, final=True, usage=self.usage, finish=self.finish)]

    @classmethod
    def stack(cls, predictions: Sequence[Self], /) -> Sequence[Tensor]:
        """Return `generated_text` BYTES [N]."""
        data = np.empty(len(predictions), object)
        data[:] = [prediction.text.encode() for prediction in predictions]
        return (Tensor(name="generated_text", datatype=Datatype.BYTES, data=data),)


ContinuedText = TextInput[TextGenerationParameters]
TextGenerator = Model[ContinuedText, Generation]


class TextGeneration:
    """Return the continuation, with `return_full_text` after the input text."""

    task_type = TaskType.TEXT_GENERATION
    parameters_type = TextGenerationParameters
    inputs = (TEXT_INPUT,)
    outputs = (TensorSpec(name="generated_text", datatype=Datatype.BYTES, shape=(-1,)),)

    def decode(
        self, request: InferenceRequest, defaults: Mapping[str, object], limits: Limits, /
    ) -> Sequence[InputGroup[ContinuedText]]:

        def check(parameters: TextGenerationParameters, path: str) -> TextGenerationParameters:
            check_sampling(parameters, limits, path)
            if parameters.messages is not None:
                check_messages(parameters.messages, 0, limits, f"{path}.messages")
            if parameters.do_sample is False:
                return msgspec.structs.replace(parameters, temperature=0.0)
            if parameters.do_sample and parameters.temperature == 0:
                return msgspec.structs.replace(parameters, temperature=_DEFAULT_TEMPERATURE)
            return parameters

        bounded_defaults = within_limits(defaults, limits)
        groups = text_groups(request, bounded_defaults, limits, TextGenerationParameters, check)
        count = sum(len(group.items) for group in groups)
        if count > limits.max_prompts:
            raise too_large(limits.max_prompts, "texts in one request (--max-prompts)", count, "inputs")
        return groups

    def postprocess(self, item: ContinuedText, prediction: Generation, /) -> Generation:
        (answer,) = prediction.chunks()
        if item.parameters.stop:
            answer = cut(answer, item.parameters.stop)
        text = item.item.text + answer.text if item.parameters.return_full_text else answer.text
        return Generation(text, usage=answer.usage, finish=answer.finish)

    def generate(self, items: Sequence[ContinuedText], model: TextGenerator, /) -> Generator[TextChunk]:
        return generate(items, model)

    def stream(self, items: Sequence[ContinuedText], model: TextGenerator, /) -> Generator[TextChunk]:
        return _with_input_texts(items, self.generate(items, model))

    def gather(self, item: ContinuedText, answers: Sequence[TextChunk], /) -> Generation:
        del item
        (answer,) = answers
        return Generation(answer.text, usage=answer.usage, finish=answer.finish)


def _with_input_texts(items: Sequence[ContinuedText], chunks: Generator[TextChunk]) -> Generator[TextChunk]:
    current = -1
    try:
        for chunk in chunks:
            if chunk.item != current:
                current = chunk.item
                if items[current].parameters.return_full_text:
                    yield TextChunk(item=current, text=items[current].item.text)
            yield chunk
    finally:
        chunks.close()
