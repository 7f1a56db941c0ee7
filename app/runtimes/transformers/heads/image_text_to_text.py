"""Run vision-language models, which answer prompts about images."""

import inspect
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

from app.runtimes.answer_tokens import AnswerTokens, answer_chunks
from app.runtimes.tokenizer import Tokenizer
from app.runtimes.transformers.architecture import ModelSpec
from app.runtimes.transformers.generation import end_tokens, last_tokens, max_answer_tokens
from app.runtimes.transformers.network import Network
from app.runtimes.transformers.processing import Conversation, load_processor
from app.runtimes.transformers.token_stream import generate, stream
from app.runtimes.transformers.tokenizing import copy_tokenizer
from app.settings.model import ModelError
from tasks.image_text_to_text import Answers, PromptedImage, strip_chunks
from tasks.task import TextChunk

__all__ = ("TransformersVisionLanguageModel", "load_vision_language_model")


class TransformersVisionLanguageModel:
    """A `StreamingModel`.

    Args:
        network: the model.
        conversation: formats its prompts.
        tokenizer: decodes its answers.
    """

    def __init__(self, network: Network, conversation: Conversation, tokenizer: Tokenizer) -> None:
        self._network = network
        self._conversation = conversation
        self._tokenizer = tokenizer
        self._end_tokens = end_tokens(network)
        self._has_types = "token_type_ids" in inspect.signature(network.module.forward).parameters

    def __call__(self, inputs: Sequence[PromptedImage], /) -> Sequence[Answers]:
        return [
            Answers(prompts=item.prompts, answers=[self._answer(item, index, text) for index, text in enumerate(texts)])
            for item, texts in zip(inputs, self._render_all(inputs), strict=True)
        ]

    def stream(self, inputs: Sequence[PromptedImage], /) -> Generator[TextChunk]:
        """Stream the answers token by token. Each ends with an empty final chunk, since no token is known to be last.

        Raises:
            InferenceError: INVALID_REQUEST for a prompt that the model cannot use.
        """
        return self._stream(inputs, self._render_all(inputs))

    def _stream(self, inputs: Sequence[PromptedImage], rendered: Sequence[Sequence[str]]) -> Generator[TextChunk]:
        for index, (item, texts) in enumerate(zip(inputs, rendered, strict=True)):
            for prompt, text in enumerate(texts):
                encoded, max_tokens = self._inputs(item, prompt, text)
                tokens = stream(self._network, encoded, item.parameters, max_tokens)
                try:
                    answer = self._tokens(tokens, encoded)
                    yield from answer_chunks(answer, strip_chunks(self._text(answer, encoded)), index, prompt)
                finally:
                    tokens.close()

    def _render_all(self, inputs: Sequence[PromptedImage]) -> list[list[str]]:
        # Validate all prompts before the first image is encoded, which takes about a thousand times longer.
        return [self._render(item) for item in inputs]

    def _render(self, item: PromptedImage) -> list[str]:
        if item.parameters.messages is not None:
            return [self._conversation.render_messages(item.parameters.messages, item.path)]
        return [
            self._conversation.render_checked(text, f"{item.path}[{index}]") for index, text in enumerate(item.prompts)
        ]

    def _answer(self, item: PromptedImage, index: int, text: str) -> str:
        encoded, max_tokens = self._inputs(item, index, text)
        answer = self._tokens(generate(self._network, encoded, item.parameters, max_tokens), encoded)
        return "".join(self._text(answer, encoded)).strip()

    def _inputs(self, item: PromptedImage, index: int, text: str) -> tuple[dict[str, Any], int]:
        encoded = self._conversation.inputs((item.image, *item.more_images), text)
        if not self._has_types:
            encoded.pop("token_type_ids", None)
        count = encoded["input_ids"].shape[1]
        return encoded, max_answer_tokens(self._network, count, item.parameters, f"{item.path}[{index}]")

    def _text(self, tokens: Iterable[int], inputs: Mapping[str, Any]) -> Iterator[str]:
        return self._tokenizer.decode_stream(tokens, last_tokens(inputs))

    def _tokens(self, tokens: Iterable[int], inputs: Mapping[str, Any]) -> AnswerTokens:
        return AnswerTokens(tokens, inputs["input_ids"].shape[1], self._end_tokens)


def load_vision_language_model(spec: ModelSpec, network: Network) -> TransformersVisionLanguageModel:
    """Return the vision-language model of `network`.

    Raises:
        ModelError: if it has no processor, cannot generate, or has no template for an image and a prompt.
    """
    source = spec.source
    if not network.module.can_generate():
        raise ModelError(f"{source.folder}: {type(network.module).__name__} cannot generate text")
    processor = load_processor(source, str(network.config.model_type))
    tokenizer, _ = copy_tokenizer(processor.tokenizer, source)
    try:
        conversation = Conversation(processor, tokenizer, str(network.config.model_type), end_tokens(network))
    except ModelError as error:
        raise ModelError(f"{source.folder}: {error}") from None
    return TransformersVisionLanguageModel(network, conversation, tokenizer)
