"""Run models that generate text: the part that all of them share, and those that continue a text."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.runtimes.answer_tokens import AnswerTokens, answer_chunks
from app.runtimes.tokenizer import Tokenizer
from app.runtimes.transformers.architecture import ModelSpec
from app.runtimes.transformers.chat import TextConversation
from app.runtimes.transformers.network import Network
from app.runtimes.transformers.token_stream import generate, log_likelihood, stream
from app.runtimes.transformers.tokenizing import copy_tokenizer, load_tokenizer, text_inputs
from app.settings.model import ModelError
from tasks.inference.error import invalid
from tasks.task import TextChunk, TokenUsage
from tasks.text.generation import SamplingParameters
from tasks.text_generation import ContinuedText, Generation, TextGenerator

_CONTEXT_TOKENS = 16


class _Sampled(Protocol):
    @property
    def parameters(self) -> SamplingParameters: ...


InputT = TypeVar("InputT", bound=_Sampled)
PredictionT = TypeVar("PredictionT")


class EncodedPrompt(msgspec.Struct, frozen=True, eq=False):
    """One prompt as the model reads it.

    Attributes:
        inputs: arguments of the model, a batch of one.
        token_count: number of its tokens, images included.
        max_tokens: maximum number of tokens of the answer.
        context: its last tokens, if they determine the spelling of the answer.
    """

    inputs: Mapping[str, Any]
    token_count: int
    max_tokens: int
    context: Sequence[int]


class GenerativeModel(ABC, Generic[InputT, PredictionT]):
    """A model of prompts that also streams its answers, and reports how likely an answer is.

    Args:
        network: the model.
        tokenizer: decodes its answers.
    """

    def __init__(self, network: Network, tokenizer: Tokenizer) -> None:
        self._network = network
        self._tokenizer = tokenizer
        self._end_tokens = end_tokens(network)

    @abstractmethod
    def _encode(self, inputs: Sequence[InputT]) -> Iterable[Iterable[EncodedPrompt]]:
        """Validate all inputs, and return the prompts of each. They may be encoded when they are read."""

    @abstractmethod
    def _prediction(
        self, item: InputT, texts: Sequence[str], tokens: Sequence[Sequence[int]], usage: Sequence[TokenUsage]
    ) -> PredictionT:
        """Return the prediction with the text, the tokens and their counts for each prompt of `item`."""

    @abstractmethod
    def _tokens(self, prediction: PredictionT) -> Sequence[Sequence[int]]:
        """Return the tokens of each answer of a prediction."""

    def __call__(self, inputs: Sequence[InputT], /) -> Sequence[PredictionT]:
        return [self._answer(item, prompts) for item, prompts in zip(inputs, self._encode(inputs), strict=True)]

    def log_likelihoods(
        self, inputs: Sequence[InputT], answers: Sequence[PredictionT], /
    ) -> Sequence[NDArray[np.float64]]:
        """Return (prompts,) for each input: the log-likelihood of the tokens of each answer."""
        return [
            np.array(
                [
                    log_likelihood(self._network, prompt.inputs, tokens)
                    for prompt, tokens in zip(prompts, self._tokens(answer), strict=True)
                ]
            )
            for prompts, answer in zip(self._encode(inputs), answers, strict=True)
        ]

    def stream(self, inputs: Sequence[InputT], /) -> Generator[TextChunk]:
        """Stream the answers token by token. Each ends with an empty final chunk, since no token is known to be last.

        Raises:
            InferenceError: INVALID_REQUEST for a prompt that the model cannot use.
        """
        return self._stream(inputs, self._encode(inputs))

    def _stream(self, inputs: Sequence[InputT], encoded: Iterable[Iterable[EncodedPrompt]]) -> Generator[TextChunk]:
        for index, (item, prompts) in enumerate(zip(inputs, encoded, strict=True)):
            for number, prompt in enumerate(prompts):
                tokens = stream(self._network, prompt.inputs, item.parameters, prompt.max_tokens)
                try:
                    answer = AnswerTokens(tokens, prompt.token_count, self._end_tokens)
                    yield from answer_chunks(answer, self._texts(answer, prompt), index, number)
                finally:
                    tokens.close()

    def _answer(self, item: InputT, prompts: Iterable[EncodedPrompt]) -> PredictionT:
        texts: list[str] = []
        tokens: list[Sequence[int]] = []
        usage: list[TokenUsage] = []
        for prompt in prompts:
            generated = generate(self._network, prompt.inputs, item.parameters, prompt.max_tokens)
            answer = AnswerTokens(generated, prompt.token_count, self._end_tokens)
            tokens.append(list(answer))
            usage.append(answer.usage)
            texts.append("".join(self._texts(tokens[-1], prompt)))
        return self._prediction(item, texts, tokens, usage)

    def _texts(self, tokens: Iterable[int], prompt: EncodedPrompt) -> Iterator[str]:
        return self._tokenizer.decode_stream(tokens, prompt.context)


class _TransformersTextGenerator(GenerativeModel[ContinuedText, Generation]):
    """A `StreamingModel`.

    Args:
        network: the model.
        tokenizer: our tokenizer.
        hf_tokenizer: transformers' tokenizer, which knows the names of the model's inputs.
    """

    def __init__(self, network: Network, tokenizer: Tokenizer, hf_tokenizer: Any) -> None:
        super().__init__(network, tokenizer)
        self._hf_tokenizer = hf_tokenizer
        self._conversation = TextConversation(hf_tokenizer, tokenizer, self._end_tokens)

    def _encode(self, inputs: Sequence[ContinuedText]) -> Iterable[Iterable[EncodedPrompt]]:
        return [[self._encode_item(item)] for item in inputs]

    def _encode_item(self, item: ContinuedText) -> EncodedPrompt:
        messages = item.parameters.messages
        if messages is None:
            ids = self._tokenizer.encode(item.item.text, with_special_tokens=True)
        else:
            ids = self._conversation.encode(messages, "messages")
        if not ids:
            raise invalid("Expected a text to continue, got an empty one", item.item.path)
        max_tokens = max_answer_tokens(self._network, len(ids), item.parameters, item.item.path)
        encoded = text_inputs([ids], self._hf_tokenizer)
        inputs = {name: value for name, value in encoded.items() if name != "token_type_ids"}
        context = () if self._network.config.is_encoder_decoder else last_tokens(inputs)
        return EncodedPrompt(inputs, len(ids), max_tokens, context)

    def _prediction(
        self, item: ContinuedText, texts: Sequence[str], tokens: Sequence[Sequence[int]], usage: Sequence[TokenUsage]
    ) -> Generation:
        del item
        return Generation(texts[0], tokens[0], usage[0])

    def _tokens(self, prediction: Generation) -> Sequence[Sequence[int]]:
        return [prediction.tokens or ()]


def load_text_generator(spec: ModelSpec, network: Network) -> TextGenerator:
    """Return the text generator of `network`.

    Raises:
        ModelError: if it has no tokenizer, or cannot generate.
    """
    if not network.module.can_generate():
        raise ModelError(f"{spec.source.folder}: {type(network.module).__name__} cannot generate text")
    hf_tokenizer = load_tokenizer(spec.source)
    return _TransformersTextGenerator(network, copy_tokenizer(hf_tokenizer, spec.source)[0], hf_tokenizer)


def last_tokens(inputs: Mapping[str, Any], name: str = "input_ids") -> list[int]:
    """Return the last tokens of a prompt, which determine the spelling of its continuation."""
    return inputs[name][0, -_CONTEXT_TOKENS:].tolist()


def end_tokens(network: Network) -> frozenset[int]:
    """Return the tokens that end an answer."""
    declared = getattr(network.module.generation_config, "eos_token_id", None)
    return frozenset((declared,) if isinstance(declared, int) else declared or ())


def max_answer_tokens(
    network: Network, count: int, parameters: SamplingParameters, path: str, decoder_count: int = 1
) -> int:
    """Return the maximum number of new tokens after a prompt.

    Args:
        network: the model.
        count: number of tokens of the prompt.
        parameters: sampling parameters.
        path: path of the prompt in the request, for errors.
        decoder_count: number of tokens at the start of the decoder, if the model has an encoder for the prompt.

    Raises:
        InferenceError: INVALID_REQUEST if the prompt fills the model's context.
    """
    config = network.config
    positions = getattr(config.get_text_config(decoder=True), "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:
        return parameters.max_new_tokens
    used = decoder_count if config.is_encoder_decoder else count
    if used >= positions or count > positions:
        message = f"Expected a text that leaves room for an answer among the model's {positions} tokens, got {count}"
        raise invalid(message, path)
    return min(parameters.max_new_tokens, positions - used)
