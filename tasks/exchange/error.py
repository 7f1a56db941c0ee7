"""The one error that crosses layers: a kind, a sentence for the sender, and the field it is about."""

from enum import StrEnum

__all__ = ("ErrorKind", "InferenceError", "brief", "invalid", "shortened")


_LONGEST_QUOTE = 80
_LONGEST_MESSAGE = 2000
_LONGEST_PATH = 1000


class ErrorKind(StrEnum):
    """Why an inference could not be answered. Each surface maps every kind to its own status once."""

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
    """A failure that can be told to the sender as it stands.

    Message and path are cut where they get long, because names in them may be the sender's.

    Args:
        kind: what went wrong, in neutral terms.
        message: one sentence saying what was expected and what came.
        path: the field of the request it is about, such as ``inputs[0].data[1]``; empty when it is about none.
    """

    def __init__(self, kind: ErrorKind, message: str, path: str = "") -> None:
        self.kind = kind
        self.message = shortened(message, _LONGEST_MESSAGE)
        self.path = shortened(path, _LONGEST_PATH)
        super().__init__(self.message)

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message

    def under(self, prefix: str) -> "InferenceError":
        """The same error with `prefix` put before its path, for a caller that knows where the field lives."""
        if not self.path:
            return InferenceError(self.kind, self.message, prefix)
        separator = "" if self.path.startswith("[") else "."
        return InferenceError(self.kind, self.message, f"{prefix}{separator}{self.path}")


def brief(value: object) -> str:
    """What a sender sent, quoted back in a message: never more than a line of it."""
    return shortened(repr(value))


def invalid(message: str, path: str = "") -> InferenceError:
    """An `INVALID_REQUEST` error, by far the commonest kind below the wire."""
    return InferenceError(ErrorKind.INVALID_REQUEST, message, path)


def shortened(text: str, most: int = _LONGEST_QUOTE) -> str:
    """`text`, or what it begins with where it has more than `most` characters."""
    return text if len(text) <= most else f"{text[:most]}..."
