"""What config.json, generation_config.json and the tokenizer's JSON say, as far as it matters here.

The fields are those of Hugging Face's configuration files; what is not listed is ignored.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

import msgspec

from app.settings.model import ModelError, read_bounded
from tasks.exchange.parameters import explained

__all__ = (
    "AddedText",
    "GenerationConfiguration",
    "ModelConfiguration",
    "TextConfiguration",
    "TokenIds",
    "TokenizerConfiguration",
    "read_json",
    "read_json_if_there",
    "read_tokenizer_configuration",
)

T = TypeVar("T")

TokenIds = int | tuple[int, ...] | None


class TextConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The language model's part of config.json."""

    max_position_embeddings: int | None = None
    hidden_size: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    eos_token_id: TokenIds = None

    @property
    def cache_heads(self) -> int | None:
        """Heads of one layer's cache."""
        return self.num_key_value_heads or self.num_attention_heads

    @property
    def cache_width(self) -> int | None:
        """Numbers of one head and one token in one layer's cache."""
        if self.head_dim is None and self.hidden_size and self.num_attention_heads:
            return self.hidden_size // self.num_attention_heads
        return self.head_dim


class ModelConfiguration(TextConfiguration, frozen=True, kw_only=True):
    """config.json. Older exports put the language model's fields at its top."""

    model_type: str = ""
    text_config: TextConfiguration | None = None
    image_token_id: int | None = None
    image_token_index: int | None = None
    image_grid_pinpoints: object = None

    @property
    def text(self) -> TextConfiguration:
        """The language model's part, wherever it stands."""
        return self if self.text_config is None else self.text_config


class GenerationConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """generation_config.json."""

    eos_token_id: TokenIds = None


class AddedText(msgspec.Struct, frozen=True, kw_only=True):
    """A token that is written as an object rather than as a text."""

    content: str


Token = str | AddedText | None


class TokenizerConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """tokenizer_config.json, or special_tokens_map.json, which has some of the same fields.

    Attributes:
        chat_template: a template, or several as objects with ``name`` and ``template``.
    """

    chat_template: str | tuple[Mapping[str, str], ...] | None = None
    bos_token: Token = None
    eos_token: Token = None
    unk_token: Token = None
    pad_token: Token = None
    sep_token: Token = None
    cls_token: Token = None
    mask_token: Token = None
    image_token: Token = None

    def special_tokens(self) -> dict[str, str]:
        """The special tokens by their role, as chat templates know them."""
        names = [name for name in self.__struct_fields__ if name != "chat_template"]
        tokens: dict[str, Token] = {name: getattr(self, name) for name in names}
        return {name: _text(token) for name, token in tokens.items() if token is not None}


def read_json(path: Path, kind: type[T]) -> T:
    """Read a JSON file as a `kind`.

    Raises:
        ModelError: naming the file that is missing or cannot be understood.
    """
    try:
        return msgspec.convert(json.loads(read_bounded(path)), kind)
    except FileNotFoundError:
        raise ModelError(f"{path} is missing") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.ValidationError as error:
        raise ModelError(f"{path}: {explained(error)}") from None
    except (ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not valid JSON: {error}") from None


def read_json_if_there(path: Path, kind: type[T]) -> T | None:
    """Read a JSON file as a `kind`, or None where there is no such file.

    Raises:
        ModelError: naming the file that cannot be understood.
    """
    return read_json(path, kind) if path.is_file() else None


def read_tokenizer_configuration(folder: Path) -> TokenizerConfiguration:
    """Read tokenizer_config.json, its special tokens from special_tokens_map.json where it has none itself.

    Raises:
        ModelError: naming the file that cannot be understood.
    """
    known = read_json_if_there(folder / "tokenizer_config.json", TokenizerConfiguration) or TokenizerConfiguration()
    mapped = read_json_if_there(folder / "special_tokens_map.json", TokenizerConfiguration)
    if mapped is None:
        return known
    absent = {name: token for name, token in mapped.special_tokens().items() if name not in known.special_tokens()}
    return msgspec.structs.replace(known, **absent)


def _text(token: str | AddedText) -> str:
    return token if isinstance(token, str) else token.content
