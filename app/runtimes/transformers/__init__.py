"""transformers: models in folders of Hugging Face (config.json, safetensors), run by torch."""

from app.runtimes.transformers.runtime import TransformersRuntime

__all__ = ("TransformersRuntime",)
