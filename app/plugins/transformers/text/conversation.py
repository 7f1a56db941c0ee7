"""Convert an image and a prompt to the inputs of a vision-language model."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import PIL.Image

from app.core.settings.model import ModelError
from app.plugins.transformers.text.library import locked
from app.plugins.transformers.text.processor import ENCODER_DECODER
from app.plugins.transformers.text.tokenizer import Tokenizer
from tasks.image_text_to_text import PromptedImage
from tasks.inference.error import InferenceError, invalid
from tasks.text.generation import Message, image_count, question, reject_conversation, template_message, with_texts
from tasks.vision.image import Image

_PROBE = "What is in the image?"


class PromptStyle(msgspec.Struct, frozen=True, kw_only=True):
    """How a model without a chat template gets a prompt, according to the library's documentation of the model.

    Attributes:
        text: text for the processor, made of the image token and the prompt.
        needs: token of `text` without which the vocabulary has no use for a prompt.
        verbatim: a prompt that starts with this is used unchanged.
        in_decoder: whether the text starts the answer. Otherwise the model reads it with the image.
        open_end: whether to remove the last token, which ends a text.
        keeps_markup: whether tokens for locations and fields are text, in prompts and in answers.
        without_unknown: whether an answer must not contain the unknown token.
    """

    text: str = "{image}\n{prompt}"
    needs: str = ""
    verbatim: str | None = None
    in_decoder: bool = False
    open_end: bool = False
    keeps_markup: bool = False
    without_unknown: bool = False


_STYLES = {
    "donut-swin": PromptStyle(
        text="<s_docvqa><s_question>{prompt}</s_question><s_answer>",
        needs="<s_docvqa>",
        verbatim="<s_",
        in_decoder=True,
        keeps_markup=True,
        without_unknown=True,
    ),
    # The processor adds the image token, and replaces task prompts such as <CAPTION>.
    "florence2": PromptStyle(text="{prompt}", keeps_markup=True),
    # The model does not continue a text after its end token.
    "git": PromptStyle(open_end=True),
    "paligemma": PromptStyle(text="{image}{prompt}"),
    ENCODER_DECODER: PromptStyle(text="", in_decoder=True),
}
"""By model type, or by the type of the image encoder; others have the defaults."""


def prompt_style(config: Any) -> PromptStyle:
    """Return how the model of a configuration gets its prompts."""
    encoder = getattr(getattr(config, "encoder", None), "model_type", "")
    return _STYLES.get(encoder) or _STYLES.get(config.model_type) or PromptStyle()


class ChatTemplate:
    """A model's chat template, which writes a conversation as one text.

    Args:
        owner: transformers' processor or tokenizer, which has the template if there is one.
        tokenizer: a copy of its tokenizer.
        end_tokens: tokens that end an answer, which no text of a client must contain.
        image_token: the text that marks an image, or "" without one. In `uses_parts`, the template writes it.
    """

    def __init__(
        self,
        owner: Any,
        tokenizer: Tokenizer,
        end_tokens: frozenset[int],
        image_token: str = "",
        *,
        uses_parts: bool = False,
    ) -> None:
        self._owner = owner
        self._tokenizer = tokenizer
        self._image_token = image_token
        self._uses_parts = uses_parts
        self._first_token = str(getattr(getattr(owner, "tokenizer", owner), "bos_token", None) or "")
        self._control_ids = (tokenizer.special_ids - {tokenizer.unknown}) | end_tokens
        self.exists = bool(getattr(owner, "chat_template", None))

    def render(self, messages: Sequence[Message], path: str) -> str:
        """Return the conversation, whose path in the request is `path`, as one text.

        Raise INVALID_REQUEST for a text that the template rejects, or that contains a control token.
        """
        text = self._write(messages, path)
        found, expected = self._control_tokens(text), self._expected_control_tokens(messages, path)
        if found != expected:
            token = self._tokenizer.text_of(next(iter(Counter(found) - Counter(expected) or expected)))
            raise invalid(f"Expected a text without the model's control tokens, got {token}", path)
        return text

    def ids(self, text: str) -> list[int]:
        """Return the token ids of a text of `render`."""
        return self._tokenizer.encode(text, with_special_tokens=not self._has_first_token(text))

    def _has_first_token(self, text: str) -> bool:
        return bool(self._first_token) and text.startswith(self._first_token)

    def _write(self, messages: Sequence[Message], path: str) -> str:
        rendered = [template_message(message, None if self._uses_parts else self._image_token) for message in messages]
        try:
            return self._owner.apply_chat_template(rendered, add_generation_prompt=True, tokenize=False)
        except Exception as error:  # noqa: BLE001 - a template may raise any type
            raise invalid(f"The model's chat template rejects the text: {error}", path) from None

    def _control_tokens(self, text: str) -> list[int]:
        ids = self._tokenizer.encode(text, with_special_tokens=False)
        return [id_ for id_ in ids if id_ in self._control_ids]

    def _expected_control_tokens(self, messages: Sequence[Message], path: str) -> list[int]:
        """Return the control tokens of the same conversation with harmless texts."""
        return self._control_tokens(self._write([with_texts(message, _PROBE) for message in messages], path))


class Conversation(ChatTemplate):
    """Formats images and a prompt with the model's chat template, or in its style.

    Its `image_id` is the token that stands for a feature of an image; None if the model has no such token. Raise
    ModelError if the chat template does not accept one image and one prompt.

    Args:
        processor: transformers' processor of the model.
        tokenizer: a copy of the processor's tokenizer.
        style: how the model gets a prompt if it has no chat template.
        end_tokens: tokens that end an answer, which a prompt must not contain.
    """

    def __init__(self, processor: Any, tokenizer: Tokenizer, style: PromptStyle, end_tokens: frozenset[int]) -> None:
        image_token = str(getattr(processor, "image_token", None) or "")
        super().__init__(processor, tokenizer, end_tokens, image_token, uses_parts=True)
        self._style = style
        self._process = locked(processor)
        self.image_id = tokenizer.id_of(image_token)
        self._control_ids |= frozenset() if self.image_id is None else {self.image_id}
        if self.exists and not self._accepts(_PROBE):
            # Some models have the template of a text model, which expects a message as one string.
            self._uses_parts = False
            if not self._accepts(_PROBE):
                raise ModelError("The chat template does not accept one image and one question")

    def render_item(self, item: PromptedImage) -> list[str]:
        """Validate the prompts of a client, and return each with its image, or the conversation, as one text.

        Raise INVALID_REQUEST for an empty text, one that the template rejects, or one that contains a control token.
        """
        messages = item.parameters.messages
        if messages is None:
            return [self._render_prompt(text, f"{item.path}[{index}]") for index, text in enumerate(item.prompts)]
        if not self.exists:
            reject_conversation(messages, item.path)
        if image_count(messages) == 0 and (
            not self.exists or self.image_id in self._expected_control_tokens(messages, item.path)
        ):
            raise invalid("Expected an image: this model answers no question without one", item.path)
        return [self.render(messages, item.path)]

    def _render_prompt(self, prompt: str, path: str) -> str:
        if not prompt.strip():
            raise invalid("Expected a question, got an empty text", path)
        return self.render([question(prompt)], path)

    def _write(self, messages: Sequence[Message], path: str) -> str:
        return super()._write(messages, path) if self.exists else self._styled(messages[0].text)

    def inputs(self, images: Sequence[Image], text: str, path: str) -> dict[str, Any]:
        """Return the arguments of the model for a text of `render_item`, as a batch of one.

        Raise INVALID_REQUEST if the processor rejects the images or the text.
        """
        options: dict[str, Any] = {} if self._style.in_decoder else {"text": [text]}
        if self._has_first_token(text):
            options["add_special_tokens"] = False
        files = [PIL.Image.fromarray(image.pixels) for image in images]
        try:
            inputs: dict[str, Any] = {**self._process(images=files or None, **options)}
        except InferenceError as error:
            raise error.with_prefix(path) from None
        if self._style.open_end:
            inputs = {name: value[:, :-1] if value.ndim == 2 else value for name, value in inputs.items()}
        if self._style.in_decoder and text:
            inputs["decoder_input_ids"] = np.array([self._tokenizer.encode(text, with_special_tokens=False)])
        if self._style.without_unknown and self._tokenizer.unknown is not None:
            inputs["bad_words_ids"] = [[self._tokenizer.unknown]]
        return inputs

    def input_size(self, inputs: Mapping[str, Any]) -> tuple[int, int] | None:
        """Return the (width, height) to which the image of `inputs` was resized; None if its processor stretches it."""
        grids = inputs.get("image_grid_thw")
        if grids is None or len(grids) != 1:
            return None
        _, rows, columns = grids[0].tolist()
        patch_size = self._owner.image_processor.patch_size
        return columns * patch_size, rows * patch_size

    def _styled(self, prompt: str) -> str:
        style = self._style
        if style.verbatim is not None and prompt.startswith(style.verbatim):
            return prompt
        if style.needs and self._tokenizer.id_of(style.needs) is None:
            return ""
        text = style.text if self._image_token else style.text.removeprefix("{image}\n")
        return text.format(image=self._image_token, prompt=prompt)

    def _accepts(self, prompt: str) -> bool:
        try:
            text = self._write([question(prompt)], "")
        except InferenceError:
            return False
        # Gemma's templates mark the start of an image, and the processor inserts the image tokens there.
        marks = [self._image_token, str(getattr(self._owner, "boi_token", None) or "")]
        return prompt in text and (not self._image_token or any(text.count(mark) == 1 for mark in marks if mark))
