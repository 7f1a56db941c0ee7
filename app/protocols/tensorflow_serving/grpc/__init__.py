"""TensorFlow Serving over gRPC."""
