"""Read config.json, generation_config.json and the tokenizer's JSON files.

The fields are those of Hugging Face's configuration files. Other fields are ignored.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from app.core.runtimes.onnxruntime.files.hugging_face import read_json

TokenIds = int | tuple[int, ...] | None


class TextConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The language model's part of config.json."""

    max_position_embeddings: int | None = None
    hidden_size: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    eos_token_id: TokenIds = None


class ModelConfiguration(TextConfiguration, frozen=True, kw_only=True):
    """config.json. Older exports have the language model's fields at the top level."""

    model_type: str = ""
    text_config: TextConfiguration | None = None
    image_token_id: int | None = None
    image_token_index: int | None = None
    image_grid_pinpoints: object = None

    @property
    def text(self) -> TextConfiguration:
        """Return the language model's part, nested or at the top level."""
        return self if self.text_config is None else self.text_config


class GenerationConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """generation_config.json."""

    eos_token_id: TokenIds = None


class AddedToken(msgspec.Struct, frozen=True, kw_only=True):
    """A token that is an object instead of a string."""

    content: str


Token = str | AddedToken | None


class TokenizerConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """tokenizer_config.json, or special_tokens_map.json, which has some of the same fields.

    `chat_template` is a template, or several as objects with ``name`` and ``template``.
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
        """Return the special tokens by their role, for chat templates."""
        names = [name for name in self.__struct_fields__ if name != "chat_template"]
        tokens: dict[str, Token] = {name: getattr(self, name) for name in names}
        texts = {name: token.content if isinstance(token, AddedToken) else token for name, token in tokens.items()}
        return {name: text for name, text in texts.items() if text is not None}


def read_tokenizer_configuration(folder: Path) -> TokenizerConfiguration:
    """Read tokenizer_config.json, and add missing special tokens from special_tokens_map.json.

    Raises:
        ModelError: if the file cannot be parsed.
    """
    special, configuration = (
        read_json(TokenizerConfiguration, folder / name) or TokenizerConfiguration()
        for name in ("special_tokens_map.json", "tokenizer_config.json")
    )
    return msgspec.structs.replace(configuration, **(special.special_tokens() | configuration.special_tokens()))
