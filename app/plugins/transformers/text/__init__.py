"""Vision-language models in ONNX, text generation and tokenizers."""
