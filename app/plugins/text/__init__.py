"""Vision-language models in ONNX, text generation and tokenizers."""

from app.core.hooks import Plugin, Ref

plugin = Plugin(
    api=1,
    requires=("hugging_face",),
    runtimes=Ref("app.plugins.text.image_text_to_text.files:RUNTIMES"),
)
