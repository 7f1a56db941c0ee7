"""Compare ONNX models, as they are served, with the pipelines of the libraries that they come from."""
