"""Convert conversations of texts to token ids with the chat template of a tokenizer."""

from collections.abc import Sequence
from typing import Any

from app.runtimes.tokenizer import Tokenizer
from tasks.inference.error import invalid
from tasks.inference.limits import check_unicode
from tasks.text.conversation import Message, reject_conversation, template_message, with_texts

_PROBE = "What is the time?"


class TextConversation:
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
