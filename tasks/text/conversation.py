"""Conversations: messages with texts and images."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from tasks.inference.error import invalid
from tasks.inference.limits import Limits, too_large


class MessagePart(msgspec.Struct, frozen=True, kw_only=True):
    """A text, or the place of the next image of the request."""

    type: Literal["text", "image"]
    text: str = ""


class Message(msgspec.Struct, frozen=True):
    """One message of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: tuple[MessagePart, ...]

    @property
    def text(self) -> str:
        """Return the texts of the message, one a line."""
        return "\n".join(part.text for part in self.content if part.type == "text")


def question(prompt: str) -> Message:
    """Return the message of a user who asks about one image."""
    return Message("user", (MessagePart(type="image"), MessagePart(type="text", text=prompt)))


def with_texts(message: Message, text: str) -> Message:
    """Return `message` with `text` in the place of each of its texts, to find the control tokens of a template."""
    parts = (part if part.type == "image" else MessagePart(type="text", text=text) for part in message.content)
    return Message(message.role, tuple(parts))


def image_count(messages: Sequence[Message]) -> int:
    """Return the number of images in `messages`."""
    return sum(part.type == "image" for message in messages for part in message.content)


def last_question(messages: Sequence[Message]) -> str:
    """Return the text of the last message."""
    return messages[-1].text


def check_messages(messages: Sequence[Message], images: int, limits: Limits, path: str) -> None:
    """Check the messages of a request that has this number of images.

    Raises:
        InferenceError: INVALID_REQUEST or TOO_LARGE, naming `path`.
    """
    if not messages or messages[-1].role != "user":
        raise invalid("Expected messages, the last one from the user", path)
    if (count := image_count(messages)) != images:
        raise invalid(f"Expected messages with the {images} images of the request, got places for {count}", path)
    length = sum(len(part.text) for message in messages for part in message.content)
    if length > limits.max_text_length:
        raise too_large(limits.max_text_length, "characters in all messages", length, path)


def reject_conversation(messages: Sequence[Message] | None, path: str) -> None:
    """Reject a conversation of several messages, for a model that answers single questions only.

    Raises:
        InferenceError: INVALID_REQUEST, naming `path`.
    """
    if messages is not None and (len(messages) > 1 or image_count(messages) > 1):
        raise invalid("Expected one question from the user: this model has no chat template for a conversation", path)


def template_message(message: Message, image_token: str | None) -> dict[str, object]:
    """Return a message for a chat template.

    Args:
        message: the message.
        image_token: marks an image for a template that expects a message as one string; None for a template that
            expects parts.
    """
    if image_token is not None:
        texts = (image_token if part.type == "image" else part.text for part in message.content)
        return {"role": message.role, "content": "\n".join(texts)}
    parts = [
        {"type": "image"} if part.type == "image" else {"type": "text", "text": part.text} for part in message.content
    ]
    return {"role": message.role, "content": parts}
