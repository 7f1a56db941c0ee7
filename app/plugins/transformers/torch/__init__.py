"""Hugging Face and timm models on torch, and their export to ONNX."""
