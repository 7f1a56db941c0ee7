"""Models that answer questions about pictures."""

import inspect
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from app.runtimes.tokenizer import Tokenizer
from app.runtimes.transformers.architecture import Understood
from app.runtimes.transformers.generation import end_tokens, last_tokens, room_for_answer
from app.runtimes.transformers.network import Network
from app.runtimes.transformers.processing import Conversation, load_processor
from app.runtimes.transformers.token_stream import generate, stream
from app.runtimes.transformers.tokenizing import own_tokenizer
from app.settings.model import ModelError
from tasks.image_text_to_text import Answers, PromptedImage, stripped
from tasks.task import TextPiece

__all__ = ("VisionLanguage", "load_vision_language_model")


class VisionLanguage:
    """A `StreamingModel`.

    Args:
        network: the model.
        conversation: how it is asked.
        tokenizer: reads its answers.
    """

    def __init__(self, network: Network, conversation: Conversation, tokenizer: Tokenizer) -> None:
        self._network = network
        self._conversation = conversation
        self._tokenizer = tokenizer
        self._ends = end_tokens(network)
        self._has_types = "token_type_ids" in inspect.signature(network.module.forward).parameters

    def __call__(self, inputs: Sequence[PromptedImage], /) -> Sequence[Answers]:
        texts = self._read(inputs)
        return [
            Answers(prompts=item.prompts, answers=[self._answer(item, index, text) for index, text in enumerate(read)])
            for item, read in zip(inputs, texts, strict=True)
        ]

    def stream(self, inputs: Sequence[PromptedImage], /) -> Generator[TextPiece]:
        """The same answers token by token; each ends with an empty piece, because no token knows that it is the last.

        Raises:
            InferenceError: INVALID_REQUEST for a question that the model cannot use.
        """
        return self._stream(inputs, self._read(inputs))

    def _stream(self, inputs: Sequence[PromptedImage], texts: Sequence[Sequence[str]]) -> Generator[TextPiece]:
        for place, (item, read) in enumerate(zip(inputs, texts, strict=True)):
            for prompt, text in enumerate(read):
                made, most = self._inputs(item, prompt, text)
                tokens = stream(self._network, made, item.parameters, most)
                try:
                    for piece in stripped(self._text(tokens, made)):
                        yield TextPiece(item=place, prompt=prompt, text=piece)
                finally:
                    tokens.close()
                yield TextPiece(item=place, prompt=prompt, text="", final=True)

    def _read(self, inputs: Sequence[PromptedImage]) -> list[list[str]]:
        # Every question is read before the first picture is looked at, which takes a thousand times longer.
        return [
            [self._conversation.checked(text, f"{item.path}[{index}]") for index, text in enumerate(item.prompts)]
            for item in inputs
        ]

    def _answer(self, item: PromptedImage, index: int, text: str) -> str:
        made, most = self._inputs(item, index, text)
        return "".join(self._text(generate(self._network, made, item.parameters, most), made)).strip()

    def _inputs(self, item: PromptedImage, index: int, text: str) -> tuple[dict[str, Any], int]:
        made = self._conversation.inputs(item.image, text)
        if not self._has_types:
            made.pop("token_type_ids", None)
        count = made["input_ids"].shape[1]
        return made, room_for_answer(self._network, count, item.parameters, f"{item.path}[{index}]")

    def _text(self, tokens: Iterable[int], inputs: Mapping[str, Any]) -> Iterator[str]:
        return self._tokenizer.pieces((each for each in tokens if each not in self._ends), last_tokens(inputs))


def load_vision_language_model(understood: Understood, network: Network) -> VisionLanguage:
    """The model of `network`.

    Raises:
        ModelError: when it has no processor, does not generate, or cannot be asked about a picture.
    """
    source = understood.source
    if not network.module.can_generate():
        raise ModelError(f"{source.folder}: {type(network.module).__name__} generates no text")
    processor = load_processor(source, str(network.config.model_type))
    tokenizer, _ = own_tokenizer(processor.tokenizer, source)
    try:
        conversation = Conversation(processor, tokenizer, str(network.config.model_type), end_tokens(network))
    except ModelError as error:
        raise ModelError(f"{source.folder}: {error}") from None
    return VisionLanguage(network, conversation, tokenizer)
