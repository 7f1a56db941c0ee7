"""ONNX Runtime: models exported to ONNX by Ultralytics, Hugging Face, timm and others, configured from their files."""
