"""Models that continue a text."""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from app.runtimes.tokenizer import Tokenizer
from app.runtimes.transformers.architecture import Understood
from app.runtimes.transformers.network import Network
from app.runtimes.transformers.token_stream import generate, stream
from app.runtimes.transformers.tokenizing import load_tokenizer, own_tokenizer, text_inputs
from app.settings.model import ModelError
from tasks.exchange.error import invalid
from tasks.task import TextPiece
from tasks.text.generation import SamplingParameters
from tasks.text_generation import ContinuedText, Generation

__all__ = ("end_tokens", "last_tokens", "load_text_generator", "room_for_answer")

_TOLD_BEFORE = 16


class TextGenerator:
    """A `StreamingGenerator`.

    Args:
        network: the model.
        tokenizer: ours.
        theirs: transformers' own, which names the model's inputs.
    """

    def __init__(self, network: Network, tokenizer: Tokenizer, theirs: Any) -> None:
        self._network = network
        self._tokenizer = tokenizer
        self._theirs = theirs
        self._ends = end_tokens(network)

    def __call__(self, inputs: Sequence[ContinuedText], /) -> Sequence[Generation]:
        return [
            Generation("".join(self._text(generate(self._network, made, item.parameters, most), made)))
            for item, (made, most) in zip(inputs, self._read(inputs), strict=True)
        ]

    def stream(self, inputs: Sequence[ContinuedText], /) -> Generator[TextPiece]:
        """The same texts token by token; each ends with an empty piece, because no token knows that it is the last.

        Raises:
            InferenceError: INVALID_REQUEST for a text that the model cannot use.
        """
        return self._stream(inputs, self._read(inputs))

    def _stream(
        self, inputs: Sequence[ContinuedText], read: Sequence[tuple[Mapping[str, Any], int]]
    ) -> Generator[TextPiece]:
        for index, (item, (made, most)) in enumerate(zip(inputs, read, strict=True)):
            tokens = stream(self._network, made, item.parameters, most)
            try:
                for text in self._text(tokens, made):
                    yield TextPiece(item=index, text=text)
            finally:
                tokens.close()
            yield TextPiece(item=index, text="", final=True)

    def _read(self, inputs: Sequence[ContinuedText]) -> list[tuple[Mapping[str, Any], int]]:
        return [self._encoded(item) for item in inputs]

    def _encoded(self, item: ContinuedText) -> tuple[Mapping[str, Any], int]:
        ids = self._tokenizer.encode(item.item.text, with_special_tokens=True)
        if not ids:
            raise invalid("Expected a text to continue, got an empty one", item.item.path)
        most = room_for_answer(self._network, len(ids), item.parameters, item.item.path)
        made = text_inputs([ids], self._theirs)
        return {name: value for name, value in made.items() if name != "token_type_ids"}, most

    def _text(self, tokens: Iterable[int], inputs: Mapping[str, Any]) -> Iterator[str]:
        behind = () if self._network.config.is_encoder_decoder else last_tokens(inputs)
        return self._tokenizer.pieces((each for each in tokens if each not in self._ends), behind)


def load_text_generator(understood: Understood, network: Network) -> TextGenerator:
    """The generator of `network`.

    Raises:
        ModelError: when it has no tokenizer, or does not generate.
    """
    if not network.module.can_generate():
        raise ModelError(f"{understood.source.folder}: {type(network.module).__name__} generates no text")
    theirs = load_tokenizer(understood.source)
    return TextGenerator(network, own_tokenizer(theirs, understood.source)[0], theirs)


def last_tokens(inputs: Mapping[str, Any]) -> list[int]:
    """The last tokens of a prompt: enough of them to tell how its continuation is spelled."""
    return inputs["input_ids"][0, -_TOLD_BEFORE:].tolist()


def end_tokens(network: Network) -> frozenset[int]:
    """The tokens that end an answer."""
    told = getattr(network.module.generation_config, "eos_token_id", None)
    return frozenset((told,) if isinstance(told, int) else told or ())


def room_for_answer(network: Network, count: int, parameters: SamplingParameters, path: str) -> int:
    """How many tokens may be generated behind `count` of them.

    Raises:
        InferenceError: INVALID_REQUEST when the model has no place left for an answer.
    """
    config = network.config
    if config.is_encoder_decoder:
        return parameters.max_new_tokens
    positions = getattr(config.get_text_config(), "max_position_embeddings", None)
    if not isinstance(positions, int) or positions <= 0:
        return parameters.max_new_tokens
    if count >= positions:
        message = f"Expected a text that leaves room for an answer among the model's {positions} tokens, got {count}"
        raise invalid(message, path)
    return min(parameters.max_new_tokens, positions - count)
