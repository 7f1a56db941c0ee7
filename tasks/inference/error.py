"""The error of all layers: a kind, a message for the client, and the path of the field."""

from enum import StrEnum

_MAX_QUOTE = 80
_MAX_MESSAGE = 2000
_MAX_PATH = 1000


class ErrorKind(StrEnum):
    """The kind of an error. Each protocol maps every kind to one of its own status codes."""

    INVALID_REQUEST = "invalid_request"
    UNSUPPORTED = "unsupported"
    MODEL_NOT_FOUND = "model_not_found"
    MODEL_NOT_READY = "model_not_ready"
    TOO_LARGE = "too_large"
    OVERLOADED = "overloaded"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"
    UNAUTHENTICATED = "unauthenticated"
    PERMISSION_DENIED = "permission_denied"
    MODEL_FAILED = "model_failed"
    INTERNAL = "internal"


class InferenceError(Exception):
    """A failure whose message may be sent to the client.

    Long messages and paths are truncated, because they may contain names from the request.

    Args:
        kind: the kind of error, independent of the protocol.
        message: one sentence with the expected and the actual value.
        path: the field of the request, such as ``inputs[0].data[1]``; empty if the error is about no field.
        retry_after: seconds after which the client should try again; None if a retry does not help.
    """

    def __init__(self, kind: ErrorKind, message: str, path: str = "", *, retry_after: int | None = None) -> None:
        self.kind = kind
        self.message = truncate(message, _MAX_MESSAGE)
        self.path = truncate(path, _MAX_PATH)
        self.retry_after = retry_after
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message

    def with_prefix(self, prefix: str) -> "InferenceError":
        """Return the same error with `prefix` before its path."""
        if not self.path:
            return InferenceError(self.kind, self.message, prefix)
        separator = "" if self.path.startswith("[") else "."
        return InferenceError(self.kind, self.message, f"{prefix}{separator}{self.path}")


def quote_value(value: object) -> str:
    """Return the `repr` of a value from a request for use in a message, truncated to a line."""
    return truncate(repr(value))


def invalid(message: str, path: str = "") -> InferenceError:
    """Return an `INVALID_REQUEST` error, the most common kind."""
    return InferenceError(ErrorKind.INVALID_REQUEST, message, path)


def model_failed(message: str) -> InferenceError:
    """Return a `MODEL_FAILED` error, for a model that raised or returned what cannot be used."""
    return InferenceError(ErrorKind.MODEL_FAILED, message)


def truncate(text: str, max_length: int = _MAX_QUOTE) -> str:
    """Return `text`, truncated to `max_length` characters."""
    return text if len(text) <= max_length else f"{text[:max_length]}..."
