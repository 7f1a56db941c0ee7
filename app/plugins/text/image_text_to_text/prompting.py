"""Render conversations with the model's Jinja chat template, and encode them with a position for each image.

Rendering matches Hugging Face's ``apply_chat_template``: sandboxed, with trimmed blocks,
``raise_exception``, ``strftime_now``, ``tojson``, loop controls and the ``generation`` block.

A prompt is plain text. Control tokens spelled out in it (``<image>``, ``<|im_end|>``, ...) could end the prompt, speak
for the model or add a second image. They are detected by their ids after normalisation and templating, and rejected.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from app.core.runtimes.onnxruntime.files.hugging_face import read_json
from app.core.settings.model import ModelError, read_bounded
from app.plugins.text.image_text_to_text.configuration import TokenizerConfiguration
from app.plugins.text.tokenizer import Tokenizer
from tasks.inference.error import invalid
from tasks.text.generation import Message, image_count, question, template_message, with_texts

if TYPE_CHECKING:
    from jinja2 import Template

_PROBE = "What is in the image?"
_TILE = "<fake_token_around_image>"

_MAX_RENDERED = 1_000_000
"""Maximum characters in addition to the prompt. Jinja's sandbox limits ``range`` itself. This limit catches mistakes:
a template is as trusted as the model's graphs."""

PromptIds = Sequence[list[int]]
"""The token ids of a conversation before the first image, between the images, and after the last one."""


class ChatTemplateError(Exception):
    """A template cannot be rendered. The message comes from Jinja or the template."""


class PlainTemplate(msgspec.Struct, frozen=True):
    """The format of a model without a chat template: the image, a line break, the prompt."""

    image_token: str

    def render(self, messages: Sequence[Message]) -> str:
        """Return the conversation as one text.

        Raises:
            ChatTemplateError: for anything but one question about one image.
        """
        if len(messages) > 1 or image_count(messages) != 1:
            raise ChatTemplateError("without a template of its own, the model takes one question about one image")
        return f"{self.image_token}\n{messages[0].text}"


class ChatTemplate(msgspec.Struct, frozen=True):
    """A model's own template, with the variables that it may use, such as ``bos_token``.

    `image_token` marks the image for a template that expects a message as one string; None for one that expects parts.
    """

    template: "Template"
    special_tokens: Mapping[str, str]
    image_token: str | None = None

    def render(self, messages: Sequence[Message]) -> str:
        """Return the conversation as one text.

        Raises:
            ChatTemplateError: if the template raises, or its output is too long.
        """
        chunks: list[str] = []
        remaining = _MAX_RENDERED + sum(len(message.text) for message in messages)
        try:
            for chunk in self.template.generate(
                **self.special_tokens,
                messages=[template_message(message, self.image_token) for message in messages],
                tools=None,
                documents=None,
                add_generation_prompt=True,
            ):
                remaining -= len(chunk)
                if remaining < 0:
                    raise ChatTemplateError(f"it writes more than {_MAX_RENDERED:,} characters")
                chunks.append(chunk)
        except Exception as error:
            raise ChatTemplateError(str(error)) from error
        return "".join(chunks)


def load_chat_template(folder: Path, tokenizer: TokenizerConfiguration) -> tuple[ChatTemplate, str] | None:
    """Find and compile the chat template of a model: its own file first, then the tokenizer's.

    Returns:
        The template and the name of its file; None for a model without one.

    Raises:
        ModelError: if a template cannot be compiled.
    """
    found = _find_source(folder, tokenizer)
    if found is None:
        return None
    from jinja2 import TemplateError

    source, name = found
    try:
        return ChatTemplate(_compile(source), tokenizer.special_tokens()), name
    except (TemplateError, RecursionError) as error:
        raise ModelError(f"The chat template in {folder / name} cannot be compiled: {error}") from None


def _find_source(folder: Path, tokenizer: TokenizerConfiguration) -> tuple[str, str] | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return read_bounded(path).decode("utf-8"), path.name
        except UnicodeDecodeError as error:
            raise ModelError(f"{path} cannot be read: {error}") from None
    names = ("chat_template.json", "processor_config.json")
    configurations = {name: read_json(TokenizerConfiguration, folder / name) for name in names}
    configurations["tokenizer_config.json"] = tokenizer
    for name, holder in configurations.items():
        template = holder.chat_template if holder else None
        if template is None:
            continue
        if isinstance(template, str):
            return template, name
        for entry in template:
            if entry.get("name") == "default" and "template" in entry:
                return entry["template"], name
        raise ModelError(f"{folder / name} has several chat templates, none of them named default")
    return None


def _compile(source: str) -> "Template":
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, LoopControlExtension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Ignores the block that marks the assistant's words for training."""

        tags = {"generation"}  # noqa: RUF012 - Jinja declares it as a plain set

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message: str) -> NoReturn:
        raise TemplateError(message)

    def strftime_now(pattern: str) -> str:
        return datetime.now().strftime(pattern)

    def tojson(value: object, *, ensure_ascii: bool = False, indent: int | None = None) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, LoopControlExtension]
    )
    environment.filters["tojson"] = tojson
    functions = {"raise_exception": raise_exception, "strftime_now": strftime_now}
    return environment.from_string(source, globals=functions)


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
        template: ChatTemplate | PlainTemplate,
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
