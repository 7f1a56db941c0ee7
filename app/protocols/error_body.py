"""The commonest shape of an error."""

import msgspec

from tasks.exchange.error import InferenceError

__all__ = ("error_object",)


def error_object(error: InferenceError) -> bytes:
    """``{"error": "..."}``, which Chariot, KServe, the Open Inference Protocol and TensorFlow Serving share."""
    return msgspec.json.encode({"error": str(error)})
