"""Transformers runtime: Hugging Face model folders (config.json, safetensors), run by torch."""
