"""Render a prompt with the model's Jinja chat template.

Rendering matches Hugging Face's ``apply_chat_template``: sandboxed, with trimmed blocks,
``raise_exception``, ``strftime_now``, ``tojson``, loop controls and the ``generation`` block.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import msgspec

from app.runtimes.onnxruntime.files.hugging_face import read_json
from app.runtimes.onnxruntime.image_text_to_text.configuration import TokenizerConfiguration
from app.settings.model import ModelError, read_bounded
from tasks.text.generation import Message, image_count, template_message

if TYPE_CHECKING:
    from jinja2 import Template

_MAX_RENDERED = 1_000_000
"""Maximum characters in addition to the prompt. Jinja's sandbox limits ``range`` itself. This limit catches mistakes:
a template is as trusted as the model's graphs."""


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
            raise ChatTemplateError("the model has none, so it takes one question about one image")
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


QuestionTemplate = ChatTemplate | PlainTemplate


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
        except (OSError, UnicodeDecodeError) as error:
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
