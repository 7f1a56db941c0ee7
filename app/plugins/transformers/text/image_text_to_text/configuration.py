"""Read config.json and generation_config.json. Fields that transformers alone reads are ignored."""

from typing import Any

import msgspec

TokenIds = int | tuple[int, ...] | None


class TextConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The language model's part of config.json."""

    max_position_embeddings: int | None = None
    hidden_size: int | None = None
    num_attention_heads: int | None = None
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    eos_token_id: TokenIds = None


class VisionConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The vision encoder's part of config.json."""

    patch_size: Any = None


class ModelConfiguration(TextConfiguration, frozen=True, kw_only=True):
    """config.json. Older exports have the language model's fields at the top level."""

    model_type: str = ""
    text_config: TextConfiguration | None = None
    vision_config: VisionConfiguration | None = None
    vision_feature_select_strategy: str | None = None
    image_grid_pinpoints: object = None

    @property
    def text(self) -> TextConfiguration:
        """Return the language model's part, nested or at the top level."""
        return self if self.text_config is None else self.text_config


class GenerationConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """generation_config.json."""

    eos_token_id: TokenIds = None
