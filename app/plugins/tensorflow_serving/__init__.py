"""TensorFlow Serving's protocol over HTTP and gRPC, on ports of its own."""

from app.core.hooks import Plugin

plugin = Plugin(
    api=1,
    name="tensorflow_serving",
    summary="TensorFlow Serving's protocol over HTTP and gRPC, on ports of its own.",
)
