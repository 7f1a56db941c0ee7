"""What each kind of failure is called on HTTP."""

from typing import assert_never

from tasks.exchange.error import ErrorKind

__all__ = ("http_status",)


def http_status(kind: ErrorKind) -> int:
    """The HTTP status code (RFC 9110) of `kind`."""
    match kind:
        case ErrorKind.INVALID_REQUEST:
            return 400
        case ErrorKind.UNAUTHENTICATED:
            return 401
        case ErrorKind.MODEL_NOT_FOUND:
            return 404
        case ErrorKind.TOO_LARGE:
            return 413
        case ErrorKind.OVERLOADED:
            return 429
        case ErrorKind.MODEL_FAILED | ErrorKind.INTERNAL:
            return 500
        case ErrorKind.UNSUPPORTED:
            return 501
        case ErrorKind.MODEL_NOT_READY:
            return 503
        case ErrorKind.DEADLINE_EXCEEDED:
            return 504
        case _:
            assert_never(kind)
