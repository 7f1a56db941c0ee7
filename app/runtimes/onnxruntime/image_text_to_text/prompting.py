"""A question to token ids, with one place for the image in them.

A question is plain text: control tokens spelled out in it (``<image>``, ``<|im_end|>``, ...) would be read as such by
the tokenizer, and could end the question, speak for the model or ask for a second image. They are told by their ids,
after normalisation and templating, and refused.
"""

from collections import Counter
from collections.abc import Set

import msgspec

from app.runtimes.onnxruntime.image_text_to_text.chat_template import ChatTemplateError, QuestionTemplate
from app.runtimes.tokenizer import Tokenizer
from app.settings.model import ModelError
from tasks.exchange.error import invalid
from tasks.text.unicode import check_unicode

__all__ = ("ImageMarkup", "PromptEncoder", "PromptIds")

_HARMLESS = "What is in the picture?"


class PromptIds(msgspec.Struct, frozen=True):
    """The token ids of a conversation before and after its image."""

    before: list[int]
    after: list[int]


class ImageMarkup:
    """The token ids that stand for an image.

    Args:
        tokenizer: of the model.
        image_id: the token that every image feature takes the place of.
        tiled: whether tiles are marked as Idefics3 marks them: each begins with ``<fake_token_around_image>`` and its
            row and column, a row ends with a line break, and the whole picture comes last, as ``<global-img>``.

    Raises:
        ModelError: when the tokenizer lacks a token that marks tiles.
    """

    def __init__(self, tokenizer: Tokenizer, image_id: int, *, tiled: bool) -> None:
        self._tokenizer = tokenizer
        self._image_id = image_id
        self._image = tokenizer.text_of(image_id) or ""
        self._tiled = tiled
        for token in ("<fake_token_around_image>", "<global-img>") if tiled else ():
            if tokenizer.id_of(token) is None:
                raise ModelError(f"The tokenizer has no {token}, which marks the tiles of a picture")

    def ids(self, rows: int, columns: int, features: int) -> list[int]:
        """Token ids of an image with `features` of them for each of its tiles."""
        if not self._tiled:
            return [self._image_id] * features
        fake, image = "<fake_token_around_image>", self._image * features
        marked = "".join(
            "".join(f"{fake}<row_{row + 1}_col_{column + 1}>{image}" for column in range(columns)) + "\n"
            for row in range(rows)
        )
        if marked:
            marked += "\n"
        return self._tokenizer.encode(f"{marked}{fake}<global-img>{image}{fake}", with_special_tokens=False)


class PromptEncoder:
    """Puts questions into the model's template and encodes them.

    Args:
        tokenizer: of the model.
        template: of the model.
        image_id: the token in whose place the image goes.
        control_ids: further tokens that a question must not spell, beside the tokenizer's special ones.
        first_token: what the model wants at the start; added by the tokenizer unless the template wrote it.

    Raises:
        ModelError: when the template does not give a place for one image, or drops the question.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: QuestionTemplate,
        image_id: int,
        control_ids: Set[int],
        first_token: str | None,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._image_id = image_id
        self._first_token = first_token
        # A word that the vocabulary lacks is no control token, though it is listed as a special one.
        self._control_ids = ((tokenizer.special_ids - {tokenizer.unknown}) | control_ids) | {image_id}
        try:
            text = template.render(_HARMLESS)
        except ChatTemplateError as error:
            raise ModelError(f"The chat template cannot be rendered: {error}") from None
        if _HARMLESS not in text:
            raise ModelError("The chat template leaves out the question")
        ids = self._ids(text)
        places = ids.count(image_id)
        if places != 1:
            image = tokenizer.text_of(image_id)
            raise ModelError(f"The chat template gives {places} places for the image ({image}), expected one")
        self._expected = self._controls(ids)

    def encode(self, prompt: str, path: str) -> PromptIds:
        """Encode one question.

        Args:
            prompt: what was asked.
            path: the field it came in, for errors.

        Raises:
            InferenceError: INVALID_REQUEST for a text without words, one that is not Unicode, one that the template
                refuses, or one that spells a control token.
        """
        if not prompt.strip():
            raise invalid("Expected a question, got an empty text", path)
        check_unicode(prompt, path)
        try:
            ids = self._ids(self._template.render(prompt))
        except ChatTemplateError as error:
            raise invalid(f"The model's chat template refuses the text: {error}", path) from None
        found = self._controls(ids)
        if found != self._expected:
            more = Counter(found) - Counter(self._expected)
            token = self._tokenizer.text_of(next(iter(more or self._expected)))
            raise invalid(f"Expected a text without the model's control tokens, got {token}", path)
        place = ids.index(self._image_id)
        return PromptIds(ids[:place], ids[place + 1 :])

    def _ids(self, text: str) -> list[int]:
        begun = self._first_token is not None and text.startswith(self._first_token)
        return self._tokenizer.encode(text, with_special_tokens=not begun)

    def _controls(self, ids: list[int]) -> list[int]:
        return [each for each in ids if each in self._control_ids]
