"""TEXT_GENERATION: continue a text.

A request has one of two forms. In the first, every BYTES input holds texts and has its own parameters. The second is
the convention of mlserver-huggingface: the inputs of a request are the arguments of one call, with one BYTES input for
the text (``args``) and one input for each parameter, with its name.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, Self, get_args

import msgspec
import numpy as np

from tasks.inference.error import InferenceError, invalid, quote_value
from tasks.inference.limits import Limits, check_text, too_large
from tasks.inference.parameters import parameter_types
from tasks.inference.request import InferenceRequest, read_parameters
from tasks.inference.tensor import BytesTensor, Datatype, InputTensor, Tensor, TensorSpec
from tasks.task import FinishReason, InputGroup, Model, TaskType, TextChunk, TokenUsage
from tasks.text.generation import SamplingParameters, check_messages, check_sampling, read_texts, within_limits
from tasks.text.stopping import cut, generate
from tasks.vision.request import check_count

TEXT_INPUT = TensorSpec(name="args", datatype=Datatype.BYTES, shape=(-1,))
"""The declared input: any number of texts, with the name of mlserver-huggingface."""

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


class ContinuedText(msgspec.Struct, frozen=True, eq=False):
    """A text to continue, its path in the request for error messages, and the parameters of its answer."""

    text: str
    path: str
    parameters: TextGenerationParameters


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
        """Return one group for each text input, with one item for each of its texts.

        An input with the name of a parameter is an argument: it overrides the request's value of this parameter for all
        texts, and has no output. An input of numbers with ``content_type: raw`` is an argument too; it is ignored if no
        parameter has its name.
        """
        check_count(request.inputs, limits)
        arguments: dict[str, object] = {}
        texts: list[tuple[int, BytesTensor]] = []
        for index, tensor in enumerate(request.inputs):
            path = f"inputs[{index}]"
            if tensor.name in parameter_types(TextGenerationParameters):
                if tensor.name in arguments:
                    raise invalid(f"Expected each argument once, got {quote_value(tensor.name)} again", f"{path}.name")
                arguments[tensor.name] = _argument(tensor, limits, f"{path}.data")
            elif isinstance(tensor, BytesTensor):
                texts.append((index, tensor))
            elif request.parameter(index, "content_type") != "raw":
                raise invalid(f"Expected BYTES with texts, got {tensor.datatype}", f"{path}.datatype")
        if not texts:
            raise invalid("Expected a text among the inputs, got arguments only", "inputs")
        groups = [self._group(request, index, tensor, arguments, defaults, limits) for index, tensor in texts]
        count = sum(len(group.items) for group in groups)
        if count > limits.max_prompts:
            raise too_large(limits.max_prompts, "texts in one request (--max-prompts)", count, "inputs")
        return groups

    def _group(
        self,
        request: InferenceRequest,
        index: int,
        tensor: BytesTensor,
        arguments: Mapping[str, object],
        defaults: Mapping[str, object],
        limits: Limits,
    ) -> InputGroup[ContinuedText]:
        layers = within_limits(defaults, limits), request.parameters, arguments, tensor.parameters
        path = f"inputs[{index}].parameters"
        parameters = read_parameters(TextGenerationParameters, *layers, path=path)
        check_sampling(parameters, limits, path)
        if parameters.messages is not None:
            check_messages(parameters.messages, 0, limits, f"{path}.messages")
        if parameters.do_sample is False:
            parameters = msgspec.structs.replace(parameters, temperature=0.0)
        elif parameters.do_sample and parameters.temperature == 0:
            parameters = msgspec.structs.replace(parameters, temperature=_DEFAULT_TEMPERATURE)
        path = f"inputs[{index}].data"
        if not tensor.elements:
            raise invalid("Expected at least one text, got none", path)
        items = [
            ContinuedText(text, f"{path}[{position}]", parameters)
            for position, text in enumerate(_read_texts(tensor, limits, path))
        ]
        return InputGroup(name=tensor.name, index=index, parameters=request.parameters_of(index), items=items)

    def postprocess(self, item: ContinuedText, prediction: Generation, /) -> Generation:
        (answer,) = prediction.chunks()
        if item.parameters.stop:
            answer = cut(answer, item.parameters.stop)
        text = item.text + answer.text if item.parameters.return_full_text else answer.text
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
                    yield TextChunk(item=current, text=items[current].text)
            yield chunk
    finally:
        chunks.close()


def _read_texts(tensor: BytesTensor, limits: Limits, path: str) -> Sequence[str]:
    texts = read_texts(tensor, path)
    for index, text in enumerate(texts):
        check_text(text, limits, f"{path}[{index}]")
    return texts


def _argument(tensor: InputTensor, limits: Limits, path: str) -> object:
    """Return the value of the parameter that `tensor`, whose elements are at `path`, is named after."""
    if isinstance(tensor, BytesTensor):
        values: list[Any] = list(_read_texts(tensor, limits, path))
    elif tensor.datatype is Datatype.BF16:
        raise invalid("Expected an argument in a datatype other than BF16", path)
    else:
        values = tensor.data.ravel().tolist()
    if not values:
        raise invalid(f"Expected a value for {tensor.name!r}, got none", path)
    value: object = values[0] if len(values) == 1 else values
    expected = parameter_types(TextGenerationParameters)[tensor.name]
    if bool in (expected, *get_args(expected)) and value in (0, 1):
        # Boolean arguments come as numbers: as INT8 on the Chariot page.
        value = bool(value)
    try:
        read_parameters(TextGenerationParameters, {tensor.name: value})
    except InferenceError as error:
        raise InferenceError(error.kind, error.message, path) from None
    return value
