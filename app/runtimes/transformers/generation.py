"""Generate text with torch: the part that all models share, and those that continue a text."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any

from app.runtimes.generation import AnswerTokens, EncodedPrompt, GenerativeModel, InputT, PredictionT
from app.runtimes.sampling import TokenPicker
from app.runtimes.tokenizer import Tokenizer
from app.runtimes.transformers.architecture import ModelSpec
from app.runtimes.transformers.network import Network
from app.runtimes.transformers.token_stream import generate, stream
from app.runtimes.transformers.tokenizing import copy_tokenizer, load_tokenizer, text_inputs
from app.settings.model import ModelError
from tasks.inference.error import invalid
from tasks.inference.limits import check_unicode
from tasks.text.conversation import Message, reject_conversation, template_message, with_texts
from tasks.text.generation import SamplingParameters
from tasks.text_generation import ContinuedText, Generation, TextGenerator

_CONTEXT_TOKENS = 16
_PROBE = "What is the time?"


class NetworkGenerator(GenerativeModel[InputT, PredictionT]):
    """A generative model whose tokens come from a network.

    Args:
        network: the model.
        tokenizer: decodes its answers.
    """

    def __init__(self, network: Network, tokenizer: Tokenizer) -> None:
        super().__init__(tokenizer, end_tokens(network))
        self._network = network

    def _generate(self, inputs: Mapping[str, Any], picker: TokenPicker, max_tokens: int) -> Sequence[int]:
        return generate(self._network, inputs, picker, max_tokens)

    def _stream_tokens(self, inputs: Mapping[str, Any], picker: TokenPicker, max_tokens: int) -> Generator[int]:
        return stream(self._network, inputs, picker, max_tokens)


class _Conversation:
    """Formats messages. A model without a chat template continues the text of one message.

    Args:
        hf_tokenizer: transformers' tokenizer, which renders the template.
        tokenizer: our tokenizer.
        end_tokens: tokens that end an answer, which a message must not contain.
    """

    def __init__(self, hf_tokenizer: Any, tokenizer: Tokenizer, end_tokens: frozenset[int]) -> None:
        self._hf_tokenizer = hf_tokenizer
        self._tokenizer = tokenizer
        self._control_ids = (tokenizer.special_ids - {tokenizer.unknown}) | end_tokens

    def encode(self, messages: Sequence[Message], path: str) -> list[int]:
        """Return the token ids of `messages`.

        Raises:
            InferenceError: INVALID_REQUEST for invalid Unicode, messages that the template rejects, or a text with a
                control token of the model.
        """
        for message in messages:
            check_unicode(message.text, path)
        if not getattr(self._hf_tokenizer, "chat_template", None):
            reject_conversation(messages, path)
            return self._tokenizer.encode(messages[0].text, with_special_tokens=True)
        ids = self._ids(messages, path)
        if self._controls(ids) != self._controls(
            self._ids([with_texts(message, _PROBE) for message in messages], path)
        ):
            raise invalid("Expected texts without the model's control tokens", path)
        return ids

    def _ids(self, messages: Sequence[Message], path: str) -> list[int]:
        rendered = [template_message(message, "") for message in messages]
        try:
            text = self._hf_tokenizer.apply_chat_template(rendered, add_generation_prompt=True, tokenize=False)
        except Exception as error:  # noqa: BLE001 - a template may raise any type
            raise invalid(f"The model's chat template rejects the messages: {error}", path) from None
        first_token = self._hf_tokenizer.bos_token
        has_first_token = bool(first_token) and text.startswith(str(first_token))
        return self._tokenizer.encode(text, with_special_tokens=not has_first_token)

    def _controls(self, ids: Sequence[int]) -> list[int]:
        return [id_ for id_ in ids if id_ in self._control_ids]


class _TransformersTextGenerator(NetworkGenerator[ContinuedText, Generation]):
    """A `StreamingModel`.

    Args:
        network: the model.
        tokenizer: our tokenizer.
        hf_tokenizer: transformers' tokenizer, which knows the names of the model's inputs.
    """

    def __init__(self, network: Network, tokenizer: Tokenizer, hf_tokenizer: Any) -> None:
        super().__init__(network, tokenizer)
        self._hf_tokenizer = hf_tokenizer
        self._conversation = _Conversation(hf_tokenizer, tokenizer, self._end_tokens)

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
        self,
        item: ContinuedText,
        texts: Sequence[str],
        tokens: Sequence[Sequence[int]],
        answers: Sequence[AnswerTokens],
    ) -> Generation:
        del item
        return Generation(texts[0], tokens[0], answers[0].usage, answers[0].finish)

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
