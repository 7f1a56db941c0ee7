"""Generate text with transformers' `generate`, token by token, and run the models that continue a text.

`generate` handles the inputs of each architecture, but supports neither a seed for one request nor cancellation.
Therefore our sampler selects a token from the scores of each step, and masks all other tokens.
"""

import queue
import threading
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from app.core.settings.model import ModelError
from app.plugins.transformers.text.conversation import ChatTemplate
from app.plugins.transformers.text.generation import EncodedPrompt, GenerativeModel, Sampler
from app.plugins.transformers.text.library import transformers
from app.plugins.transformers.text.tokenizer import Tokenizer, copy_tokenizer, load_tokenizer
from app.plugins.transformers.torch.architecture import ModelSpec
from app.plugins.transformers.torch.framework import load_torch
from app.plugins.transformers.torch.network import Network
from tasks.inference.error import InferenceError, invalid
from tasks.text.generation import Message, MessagePart, SamplingParameters, reject_conversation
from tasks.text_generation import ContinuedText, Generation, TextGeneration, TextGenerator

_CONTEXT_TOKENS = 16
_PROBE = "What is the time?"
_MESSAGES = "messages"
"""The path of a conversation in a request."""


def generate_tokens(network: Network, inputs: Mapping[str, Any], sampler: Sampler, max_tokens: int) -> Generator[int]:
    """Yield the tokens one by one. The model is at most one token ahead, and stops when the generator is closed."""
    tokens: queue.Queue[int | BaseException | None] = queue.Queue(maxsize=1)
    closed = threading.Event()

    def run() -> None:
        try:
            _run_generate(network, inputs, sampler, max_tokens, tokens.put, closed)
        except BaseException as error:  # noqa: BLE001 - raised again in the reading thread
            tokens.put(error)
        tokens.put(None)

    worker = threading.Thread(target=run, name="generate", daemon=True)
    worker.start()
    ended = False
    try:
        for token in iter(tokens.get, None):
            if isinstance(token, BaseException):
                raise token
            yield token
        ended = True
    finally:
        closed.set()
        while not ended:
            ended = tokens.get() is None
        worker.join()


class _TransformersTextGenerator(GenerativeModel[ContinuedText, Generation]):
    """A `StreamingModel` of texts, and of conversations if the tokenizer has a chat template.

    The tokenizer of transformers, `hf_tokenizer`, also knows the names of the model's inputs.
    """

    def __init__(self, network: Network, tokenizer: Tokenizer, hf_tokenizer: Any) -> None:
        super().__init__(TextGeneration().gather, partial(generate_tokens, network), tokenizer, end_tokens(network))
        self._network = network
        self._hf_tokenizer = hf_tokenizer
        self.template = ChatTemplate(hf_tokenizer, tokenizer, self._end_tokens)

    def _encode(self, inputs: Sequence[ContinuedText]) -> Iterable[Iterable[EncodedPrompt]]:
        return [[self._encode_item(item)] for item in inputs]

    def _encode_item(self, item: ContinuedText) -> EncodedPrompt:
        messages = item.parameters.messages
        if messages is None:
            ids = self._tokenizer.encode(item.text, with_special_tokens=True)
        else:
            ids = self._conversation_ids(messages)
        if not ids:
            raise invalid("Expected a text to continue, got an empty one", item.path)
        max_tokens = max_answer_tokens(self._network, len(ids), item.parameters, item.path)
        inputs = dict(self._hf_tokenizer.pad({"input_ids": [ids]}, padding=False, return_tensors="pt"))
        context = () if self._network.config.is_encoder_decoder else last_tokens(inputs)
        return EncodedPrompt(inputs, len(ids), max_tokens, context)

    def _conversation_ids(self, messages: Sequence[Message]) -> list[int]:
        """Return the token ids of a conversation; without a chat template, of its only message.

        Raise INVALID_REQUEST for messages that the template rejects, or a text with a control token of the model.
        """
        if not self.template.exists:
            reject_conversation(messages, _MESSAGES)
            return self._tokenizer.encode(messages[0].text, with_special_tokens=True)
        return self.template.ids(self.template.render(messages, _MESSAGES))


def load_text_generator(spec: ModelSpec, network: Network) -> TextGenerator:
    """Return the text generator of `network`.

    Raise ModelError if it has no tokenizer, or its chat template rejects a short message.
    """
    hf_tokenizer = load_tokenizer(spec.source)
    generator = _TransformersTextGenerator(network, copy_tokenizer(hf_tokenizer, spec.source), hf_tokenizer)
    if generator.template.exists:
        try:
            generator.template.render([Message("user", (MessagePart(type="text", text=_PROBE),))], _MESSAGES)
        except InferenceError as error:
            raise ModelError(
                f'{spec.source.folder}: {error.message}, for the message "{_PROBE}"; correct the chat template, or '
                f"remove it to serve texts only"
            ) from None
    return generator


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
    """Return the maximum number of new tokens after a prompt of `count` tokens.

    If the model has an encoder for the prompt, the decoder starts with `decoder_count` tokens. Raise INVALID_REQUEST if
    the prompt fills the model's context.
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


def _run_generate(
    network: Network,
    inputs: Mapping[str, Any],
    sampler: Sampler,
    max_tokens: int,
    on_token: Callable[[int], None],
    closed: threading.Event,
) -> None:
    torch = load_torch()

    def pick(input_ids: Any, scores: Any) -> Any:
        del input_ids
        token = sampler.pick(scores[0].float().cpu().numpy())
        on_token(token)
        only = torch.full_like(scores, -torch.inf)
        only[:, token] = 0
        return only

    def is_closed(input_ids: Any, scores: Any) -> Any:
        del scores
        return torch.full((input_ids.shape[0],), closed.is_set(), device=input_ids.device, dtype=torch.bool)

    with torch.inference_mode():
        network.module.generate(
            **network.to_device(inputs),
            do_sample=False,
            num_beams=1,
            num_return_sequences=1,
            max_new_tokens=max_tokens,
            logits_processor=transformers().LogitsProcessorList([pick]),
            stopping_criteria=transformers().StoppingCriteriaList([is_closed]),
        )
