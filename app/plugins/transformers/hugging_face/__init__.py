"""Labels, tasks and preprocessing in the Hugging Face files beside ONNX graphs."""
