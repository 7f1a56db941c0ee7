"""Check TensorFlow Serving over REST and gRPC."""
