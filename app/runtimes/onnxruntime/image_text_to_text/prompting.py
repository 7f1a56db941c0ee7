"""Encode conversations to token ids with a position for each image.

A prompt is plain text. Control tokens spelled out in it (``<image>``, ``<|im_end|>``, ...) could end the prompt, speak
for the model or add a second image. They are detected by their ids after normalisation and templating, and rejected.
"""

from collections import Counter
from collections.abc import Sequence

from app.runtimes.onnxruntime.image_text_to_text.chat_template import ChatTemplateError, QuestionTemplate
from app.runtimes.tokenizer import Tokenizer
from app.settings.model import ModelError
from tasks.inference.error import invalid
from tasks.text.generation import Message, image_count, question, with_texts

_PROBE = "What is in the image?"
_TILE = "<fake_token_around_image>"


PromptIds = Sequence[list[int]]
"""The token ids of a conversation before the first image, between the images, and after the last one."""


class PromptEncoder:
    """Renders prompts with the model's template and encodes them, and marks images.

    A prompt must contain neither `end_tokens` nor special tokens of the tokenizer. The tokenizer adds `first_token`
    unless the template does. If images are `tiled`, each tile starts with ``<fake_token_around_image>`` and its row and
    column. A row then ends with a line break, and the whole image comes last, as ``<global-img>``, as in Idefics3.

    Raises:
        ModelError: if the template drops the prompt, or does not contain exactly one image, or if the tokenizer lacks a
            token that marks tiles.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: QuestionTemplate,
        image_id: int,
        end_tokens: frozenset[int],
        first_token: str | None,
        *,
        tiled: bool,
    ) -> None:
        self.tokenizer = tokenizer
        self.image_id = image_id
        self.end_tokens = end_tokens
        self._template = template
        self._first_token = first_token
        self._tiled = tiled
        # The unknown token is special, but it is not a control token.
        self._control_ids = ((tokenizer.special_ids - {tokenizer.unknown}) | end_tokens) | {image_id}
        try:
            text = template.render([question(_PROBE)])
        except ChatTemplateError as error:
            raise ModelError(f"The chat template cannot be rendered: {error}") from None
        if _PROBE not in text:
            raise ModelError("The chat template leaves out the question")
        ids = self._ids(text)
        image_count = ids.count(image_id)
        if image_count != 1:
            image = tokenizer.text_of(image_id)
            raise ModelError(f"The chat template gives {image_count} places for the image ({image}), expected one")
        self._expected = self._controls(ids)
        for token in (_TILE, "<global-img>") if tiled else ():
            if tokenizer.id_of(token) is None:
                raise ModelError(f"The tokenizer has no {token}, which marks the tiles of an image")

    def image_ids(self, rows: int, columns: int, features: int) -> list[int]:
        """Return the token ids of an image with `features` image tokens for each tile."""
        if not self._tiled:
            return [self.image_id] * features
        image = (self.tokenizer.text_of(self.image_id) or "") * features
        lines = [
            "".join(f"{_TILE}<row_{row}_col_{column}>{image}" for column in range(1, columns + 1)) + "\n"
            for row in range(1, rows + 1)
        ]
        marked = "".join([*lines, "\n"]) if any(lines) else ""
        return self.tokenizer.encode(f"{marked}{_TILE}<global-img>{image}{_TILE}", with_special_tokens=False)

    def encode(self, prompt: str, path: str) -> PromptIds:
        """Encode one prompt about one image; arguments and errors as `encode_messages`."""
        if not prompt.strip():
            raise invalid("Expected a question, got an empty text", path)
        return self._encode([question(prompt)], self._expected, path)

    def encode_messages(self, messages: Sequence[Message], path: str) -> PromptIds:
        """Encode a conversation, whose path in the request is `path`.

        Raises:
            InferenceError: INVALID_REQUEST for an empty text, one that the template rejects, or one that contains a
                control token.
        """
        harmless = [with_texts(message, _PROBE) for message in messages]
        expected = self._controls(self._render(harmless, path))
        if expected.count(self.image_id) != image_count(messages):
            raise invalid("The model's chat template does not accept this order of images and messages", path)
        return self._encode(messages, expected, path)

    def _encode(self, messages: Sequence[Message], expected: Sequence[int], path: str) -> PromptIds:
        ids = self._render(messages, path)
        controls = self._controls(ids)
        if controls != expected:
            additional = Counter(controls) - Counter(expected)
            token = self.tokenizer.text_of(next(iter(additional or expected)))
            raise invalid(f"Expected a text without the model's control tokens, got {token}", path)
        parts: list[list[int]] = [[]]
        for id_ in ids:
            if id_ == self.image_id:
                parts.append([])
            else:
                parts[-1].append(id_)
        return parts

    def _render(self, messages: Sequence[Message], path: str) -> list[int]:
        try:
            return self._ids(self._template.render(messages))
        except ChatTemplateError as error:
            raise invalid(f"The model's chat template rejects the text: {error}", path) from None

    def _ids(self, text: str) -> list[int]:
        has_first_token = self._first_token is not None and text.startswith(self._first_token)
        return self.tokenizer.encode(text, with_special_tokens=not has_first_token)

    def _controls(self, ids: list[int]) -> list[int]:
        return [id_ for id_ in ids if id_ in self._control_ids]
