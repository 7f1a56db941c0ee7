"""The error body that most protocols use."""

import msgspec

from tasks.inference.error import InferenceError

__all__ = ("error_object",)


def error_object(error: InferenceError) -> bytes:
    """Return ``{"error": "..."}``, the body of Chariot, KServe, the Open Inference Protocol and TensorFlow Serving."""
    return msgspec.json.encode({"error": str(error)})
