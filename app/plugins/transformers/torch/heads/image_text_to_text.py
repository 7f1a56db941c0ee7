"""Run vision-language models, which answer prompts about images."""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from app.core.settings.model import ModelError
from app.plugins.transformers.text.conversation import Conversation, prompt_style
from app.plugins.transformers.text.generation import EncodedPrompt, PromptedImageModel
from app.plugins.transformers.text.processor import load_processor
from app.plugins.transformers.text.tokenizer import Tokenizer, copy_tokenizer
from app.plugins.transformers.torch.architecture import ModelSpec
from app.plugins.transformers.torch.framework import load_torch
from app.plugins.transformers.torch.generation import end_tokens, generate_tokens, last_tokens, max_answer_tokens
from app.plugins.transformers.torch.network import Network
from tasks.image_text_to_text import PromptedImage


class TransformersVisionLanguageModel(PromptedImageModel):
    """A `StreamingModel`. If an answer continues the tokens of its prompt, they determine its spelling."""

    def __init__(
        self, network: Network, conversation: Conversation, tokenizer: Tokenizer, *, continues_prompt: bool
    ) -> None:
        super().__init__(conversation, partial(generate_tokens, network), tokenizer, end_tokens(network))
        self._network = network
        self._continues_prompt = continues_prompt
        self._has_types = "token_type_ids" in inspect.signature(network.module.forward).parameters

    def _encode_item(self, item: PromptedImage, texts: Sequence[str]) -> Iterator[EncodedPrompt]:
        """Yield each prompt. The vision tower runs once, if possible."""
        features: dict[str, Any] = {}
        for index, text in enumerate(texts):
            path = f"{item.path}[{index}]"
            encoded = self._conversation.inputs(item.images, text, path)
            if not self._has_types:
                encoded.pop("token_type_ids", None)
            if len(texts) > 1:
                features = features or _features(self._network, encoded)
            if features:
                encoded = {**encoded, **features}
                del encoded["pixel_values"]
            count, decoder_count = _count(encoded, "input_ids"), _count(encoded, "decoder_input_ids")
            start = max(1, decoder_count)
            max_tokens = max_answer_tokens(self._network, count or start, item.parameters, path, start)
            size = self._conversation.input_size(encoded)
            yield EncodedPrompt(encoded, count + decoder_count, max_tokens, self._context(encoded), size)

    def _context(self, inputs: Mapping[str, Any]) -> Sequence[int]:
        if "decoder_input_ids" in inputs:
            return last_tokens(inputs, "decoder_input_ids")
        return last_tokens(inputs) if self._continues_prompt else ()


def load_vision_language_model(spec: ModelSpec, network: Network) -> TransformersVisionLanguageModel:
    """Return the vision-language model of `network`.

    Raise ModelError if it has no processor, cannot generate, or has no template for an image and a prompt.
    """
    source, config = spec.source, network.config
    if not network.module.can_generate():
        raise ModelError(f"{source.folder}: {type(network.module).__name__} cannot generate text")
    style = prompt_style(config)
    processor = load_processor(source, str(config.model_type))
    tokenizer = copy_tokenizer(processor.tokenizer, source, keeps_markup=style.keeps_markup)
    try:
        conversation = Conversation(processor, tokenizer, style, end_tokens(network))
    except ModelError as error:
        raise ModelError(f"{source.folder}: {error}") from None
    answers_question = spec.auto == "AutoModelForVisualQuestionAnswering"
    continues_prompt = not (answers_question or config.is_encoder_decoder)
    model = TransformersVisionLanguageModel(network, conversation, tokenizer, continues_prompt=continues_prompt)
    model.form = spec.grounding
    return model


def _features(network: Network, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs of the vision tower as arguments of `generate`; none if the model does not accept them."""
    module, model_type = network.module, network.config.model_type
    accepts = "mm_encoder_outputs" in inspect.signature(module.forward).parameters or model_type == "florence2"
    if "pixel_values" not in inputs or not (accepts or model_type == "vision-encoder-decoder"):
        return {}
    moved = network.to_device(inputs)
    with load_torch().inference_mode():
        if not accepts:
            return {"encoder_outputs": module.get_encoder()(pixel_values=moved["pixel_values"], return_dict=True)}
        encode = module.base_model.get_image_features
        arguments = {name: moved[name] for name in inspect.signature(encode).parameters if name in moved}
        return {"mm_encoder_outputs": {"image": encode(**arguments, return_dict=True)}}


def _count(inputs: Mapping[str, Any], name: str) -> int:
    return inputs[name].shape[1] if name in inputs else 0
