"""Run vision-language models, which answer prompts about images."""

import inspect
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtimes.answer_tokens import AnswerTokens, answer_chunks
from app.runtimes.tokenizer import Tokenizer
from app.runtimes.transformers.architecture import ModelSpec
from app.runtimes.transformers.framework import framework
from app.runtimes.transformers.generation import end_tokens, last_tokens, max_answer_tokens
from app.runtimes.transformers.network import Network
from app.runtimes.transformers.processing import Conversation, load_processor, prompt_style
from app.runtimes.transformers.token_stream import generate, log_likelihood, stream
from app.runtimes.transformers.tokenizing import check_length, copy_tokenizer
from app.settings.model import ModelError
from tasks.image_text_to_text import Answers, PromptedImage, VisionLanguageModel
from tasks.task import TextChunk

__all__ = ("TransformersVisionLanguageModel", "load_vision_language_model")


class TransformersVisionLanguageModel:
    """A `StreamingModel`.

    Args:
        network: the model.
        conversation: formats its prompts.
        tokenizer: decodes its answers.
        continues_prompt: whether an answer continues the tokens of its prompt, which determine its spelling.
    """

    def __init__(
        self, network: Network, conversation: Conversation, tokenizer: Tokenizer, *, continues_prompt: bool
    ) -> None:
        self._network = network
        self._conversation = conversation
        self._tokenizer = tokenizer
        self._continues_prompt = continues_prompt
        self._end_tokens = end_tokens(network)
        self._has_types = "token_type_ids" in inspect.signature(network.module.forward).parameters

    def __call__(self, inputs: Sequence[PromptedImage], /) -> Sequence[Answers]:
        return [self._answers(item, texts) for item, texts in zip(inputs, self._render_all(inputs), strict=True)]

    def log_likelihoods(
        self, inputs: Sequence[PromptedImage], answers: Sequence[Answers], /
    ) -> Sequence[NDArray[np.float64]]:
        """Return (prompts,) for each input: the log-likelihood of the tokens of each answer."""
        return [
            np.array(
                [
                    log_likelihood(self._network, encoded, tokens)
                    for (encoded, _), tokens in zip(self._encode(item, texts), answer.tokens or (), strict=True)
                ]
            )
            for item, texts, answer in zip(inputs, self._render_all(inputs), answers, strict=True)
        ]

    def stream(self, inputs: Sequence[PromptedImage], /) -> Generator[TextChunk]:
        """Stream the answers token by token. Each ends with an empty final chunk, since no token is known to be last.

        Raises:
            InferenceError: INVALID_REQUEST for a prompt that the model cannot use.
        """
        return self._stream(inputs, self._render_all(inputs))

    def _stream(self, inputs: Sequence[PromptedImage], rendered: Sequence[Sequence[str]]) -> Generator[TextChunk]:
        for index, (item, texts) in enumerate(zip(inputs, rendered, strict=True)):
            for prompt, (encoded, max_tokens) in enumerate(self._encode(item, texts)):
                tokens = stream(self._network, encoded, item.parameters, max_tokens)
                try:
                    answer = self._tokens(tokens, encoded)
                    yield from answer_chunks(answer, self._text(answer, encoded), index, prompt)
                finally:
                    tokens.close()

    def _render_all(self, inputs: Sequence[PromptedImage]) -> list[list[str]]:
        # Validate all prompts before the first image is encoded, which takes about a thousand times longer.
        return [self._conversation.render_item(item) for item in inputs]

    def _answers(self, item: PromptedImage, texts: Sequence[str]) -> Answers:
        answers: list[str] = []
        tokens: list[Sequence[int]] = []
        for encoded, max_tokens in self._encode(item, texts):
            answer = list(self._tokens(generate(self._network, encoded, item.parameters, max_tokens), encoded))
            tokens.append(answer)
            answers.append("".join(self._text(answer, encoded)))
        return Answers(prompts=item.prompts, answers=answers, tokens=tokens)

    def _encode(self, item: PromptedImage, texts: Sequence[str]) -> Iterator[tuple[dict[str, Any], int]]:
        """Yield the inputs and the maximum number of tokens of each text. The vision tower runs once, if possible."""
        features: dict[str, Any] = {}
        for index, text in enumerate(texts):
            path = f"{item.path}[{index}]"
            encoded = self._conversation.inputs((item.image, *item.more_images), text, path)
            if not self._has_types:
                encoded.pop("token_type_ids", None)
            if len(texts) > 1:
                features = features or _features(self._network, encoded)
            if features:
                encoded = {**encoded, **features}
                del encoded["pixel_values"]
            start = max(1, _count(encoded, "decoder_input_ids"))
            count = _count(encoded, "input_ids") or start
            yield encoded, max_answer_tokens(self._network, count, item.parameters, path, start)

    def _text(self, tokens: Iterable[int], inputs: Mapping[str, Any]) -> Iterator[str]:
        context: Sequence[int] = ()
        if "decoder_input_ids" in inputs:
            context = last_tokens(inputs, "decoder_input_ids")
        elif self._continues_prompt:
            context = last_tokens(inputs)
        return self._tokenizer.decode_stream(tokens, context)

    def _tokens(self, tokens: Iterable[int], inputs: Mapping[str, Any]) -> AnswerTokens:
        count = _count(inputs, "input_ids") + _count(inputs, "decoder_input_ids")
        return AnswerTokens(tokens, count, self._end_tokens)


def load_vision_language_model(spec: ModelSpec, network: Network) -> VisionLanguageModel:
    """Return the vision-language model of `network`, a `StreamingModel` if it generates its answers.

    Raises:
        ModelError: if it has no processor, can neither generate nor choose among answers, or has no template for an
            image and a prompt.
    """
    source, config = spec.source, network.config
    answers_question = spec.auto == "AutoModelForVisualQuestionAnswering"
    generates = network.module.can_generate()
    if not generates and not answers_question:
        raise ModelError(f"{source.folder}: {type(network.module).__name__} cannot generate text")
    style = prompt_style(config)
    processor = load_processor(source, str(config.model_type))
    tokenizer, _ = copy_tokenizer(processor.tokenizer, source, keeps_markup=style.keeps_markup)
    ends = end_tokens(network) if generates else frozenset[int]()
    try:
        conversation = Conversation(processor, tokenizer, style, ends)
    except ModelError as error:
        raise ModelError(f"{source.folder}: {error}") from None
    if not generates:
        return _answer_classifier(network, conversation)
    continues_prompt = not (answers_question or config.is_encoder_decoder)
    return TransformersVisionLanguageModel(network, conversation, tokenizer, continues_prompt=continues_prompt)


def _answer_classifier(network: Network, conversation: Conversation) -> VisionLanguageModel:
    """Return a model that chooses each answer from a list in its configuration, as ViLT does."""

    def answer(item: PromptedImage, text: str, path: str) -> str:
        inputs = conversation.inputs((item.image,), text, path)
        check_length(_count(inputs, "input_ids"), getattr(network.config, "max_position_embeddings", None), path)
        return str(network.config.id2label[int(network(inputs).logits[0].argmax())])

    def answer_all(inputs: Sequence[PromptedImage], /) -> Sequence[Answers]:
        rendered = [conversation.render_item(item) for item in inputs]
        return [
            Answers(
                prompts=item.prompts,
                answers=[answer(item, text, f"{item.path}[{index}]") for index, text in enumerate(texts)],
            )
            for item, texts in zip(inputs, rendered, strict=True)
        ]

    return answer_all


def _features(network: Network, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of the vision tower as arguments of `generate`; none if the model does not accept them."""
    module, model_type = network.module, network.config.model_type
    accepts = "mm_encoder_outputs" in inspect.signature(module.forward).parameters or model_type == "florence2"
    if "pixel_values" not in inputs or not (accepts or model_type == "vision-encoder-decoder"):
        return {}
    moved = network.to_device(inputs)
    with network.call_lock, framework().torch.inference_mode():
        if not accepts:
            return {"encoder_outputs": module.get_encoder()(pixel_values=moved["pixel_values"], return_dict=True)}
        encode = module.base_model.get_image_features
        arguments = {name: moved[name] for name in inspect.signature(encode).parameters if name in moved}
        return {"mm_encoder_outputs": {"image": encode(**arguments, return_dict=True)}}


def _count(inputs: Mapping[str, Any], name: str) -> int:
    return inputs[name].shape[1] if name in inputs else 0
