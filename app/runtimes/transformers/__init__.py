"""Transformers runtime: Hugging Face model folders (config.json, safetensors), run by torch."""

from app.runtimes.transformers.runtime import TransformersRuntime

__all__ = ("TransformersRuntime",)
