"""Run models that continue a text."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

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
from tasks.task import TextChunk
from tasks.text.generation import SamplingParameters
from tasks.text_generation import ContinuedText, Generation

__all__ = ("end_tokens", "last_tokens", "load_text_generator", "max_answer_tokens")

_CONTEXT_TOKENS = 16


class TextGenerator:
    """A `StreamingGenerator`.

    Args:
        network: the model.
        tokenizer: our tokenizer.
        hf_tokenizer: transformers' tokenizer, which knows the names of the model's inputs.
    """

    def __init__(self, network: Network, tokenizer: Tokenizer, hf_tokenizer: Any) -> None:
        self._network = network
        self._tokenizer = tokenizer
        self._hf_tokenizer = hf_tokenizer
        self._end_tokens = end_tokens(network)
        self._conversation = TextConversation(hf_tokenizer, tokenizer, self._end_tokens)

    def __call__(self, inputs: Sequence[ContinuedText], /) -> Sequence[Generation]:
        answers: list[Generation] = []
        for item, (encoded, max_tokens) in zip(inputs, self._encode_all(inputs), strict=True):
            tokens = generate(self._network, encoded, item.parameters, max_tokens)
            answer = list(self._tokens(tokens, encoded))
            answers.append(Generation("".join(self._text(answer, encoded)), answer))
        return answers

    def log_likelihoods(
        self, inputs: Sequence[ContinuedText], answers: Sequence[Generation], /
    ) -> Sequence[NDArray[np.float64]]:
        """Return (1,) for each input: the log-likelihood of the tokens of its answer."""
        return [
            np.array([log_likelihood(self._network, encoded, answer.tokens or ())])
            for (encoded, _), answer in zip(self._encode_all(inputs), answers, strict=True)
        ]

    def stream(self, inputs: Sequence[ContinuedText], /) -> Generator[TextChunk]:
        """Stream the texts token by token. Each text ends with an empty final chunk: no token is known to be last.

        Raises:
            InferenceError: INVALID_REQUEST for a text that the model cannot use.
        """
        return self._stream(inputs, self._encode_all(inputs))

    def _stream(
        self, inputs: Sequence[ContinuedText], encodings: Sequence[tuple[Mapping[str, Any], int]]
    ) -> Generator[TextChunk]:
        for index, (item, (encoded, max_tokens)) in enumerate(zip(inputs, encodings, strict=True)):
            tokens = stream(self._network, encoded, item.parameters, max_tokens)
            try:
                answer = self._tokens(tokens, encoded)
                yield from answer_chunks(answer, self._text(answer, encoded), index)
            finally:
                tokens.close()

    def _encode_all(self, inputs: Sequence[ContinuedText]) -> list[tuple[Mapping[str, Any], int]]:
        return [self._encode(item) for item in inputs]

    def _encode(self, item: ContinuedText) -> tuple[Mapping[str, Any], int]:
        messages = item.parameters.messages
        if messages is None:
            ids = self._tokenizer.encode(item.item.text, with_special_tokens=True)
        else:
            ids = self._conversation.encode(messages, "messages")
        if not ids:
            raise invalid("Expected a text to continue, got an empty one", item.item.path)
        max_tokens = max_answer_tokens(self._network, len(ids), item.parameters, item.item.path)
        encoded = text_inputs([ids], self._hf_tokenizer)
        return {name: value for name, value in encoded.items() if name != "token_type_ids"}, max_tokens

    def _text(self, tokens: Iterable[int], inputs: Mapping[str, Any]) -> Iterator[str]:
        prefix = () if self._network.config.is_encoder_decoder else last_tokens(inputs)
        return self._tokenizer.decode_stream(tokens, prefix)

    def _tokens(self, tokens: Iterable[int], inputs: Mapping[str, Any]) -> AnswerTokens:
        return AnswerTokens(tokens, inputs["input_ids"].shape[1], self._end_tokens)


def load_text_generator(spec: ModelSpec, network: Network) -> TextGenerator:
    """Return the text generator of `network`.

    Raises:
        ModelError: if it has no tokenizer, or cannot generate.
    """
    if not network.module.can_generate():
        raise ModelError(f"{spec.source.folder}: {type(network.module).__name__} cannot generate text")
    hf_tokenizer = load_tokenizer(spec.source)
    return TextGenerator(network, copy_tokenizer(hf_tokenizer, spec.source)[0], hf_tokenizer)


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
