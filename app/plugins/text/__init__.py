"""Vision-language models in ONNX, text generation and tokenizers."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    name="text",
    summary="Vision-language models in ONNX, text generation and tokenizers.",
)
