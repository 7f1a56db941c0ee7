"""The HTTP and gRPC status of each kind of error."""

from typing import assert_never

import grpc

from tasks.inference.error import ErrorKind

__all__ = ("grpc_status", "http_status")


def http_status(kind: ErrorKind) -> int:
    """Return the HTTP status code (RFC 9110) of `kind`."""
    match kind:
        case ErrorKind.INVALID_REQUEST | ErrorKind.UNSUPPORTED:
            return 400
        case ErrorKind.UNAUTHENTICATED:
            return 401
        case ErrorKind.PERMISSION_DENIED:
            return 403
        case ErrorKind.MODEL_NOT_FOUND:
            return 404
        case ErrorKind.TOO_LARGE:
            return 413
        case ErrorKind.OVERLOADED:
            return 429
        case ErrorKind.CANCELLED:
            # RFC 9110 has no status for a client that disconnected; nginx uses this one.
            return 499
        case ErrorKind.MODEL_FAILED | ErrorKind.INTERNAL:
            return 500
        case ErrorKind.MODEL_NOT_READY:
            return 503
        case ErrorKind.DEADLINE_EXCEEDED:
            return 504
        case _:
            assert_never(kind)


def grpc_status(kind: ErrorKind) -> grpc.StatusCode:
    """Return the gRPC status code of `kind`.

    TOO_LARGE is INVALID_ARGUMENT, because a retry cannot succeed, and clients retry after RESOURCE_EXHAUSTED. Only
    gRPC's own limit on message bytes gives RESOURCE_EXHAUSTED.
    """
    match kind:
        case ErrorKind.INVALID_REQUEST | ErrorKind.TOO_LARGE:
            return grpc.StatusCode.INVALID_ARGUMENT
        case ErrorKind.UNAUTHENTICATED:
            return grpc.StatusCode.UNAUTHENTICATED
        case ErrorKind.PERMISSION_DENIED:
            return grpc.StatusCode.PERMISSION_DENIED
        case ErrorKind.MODEL_NOT_FOUND:
            return grpc.StatusCode.NOT_FOUND
        case ErrorKind.OVERLOADED:
            return grpc.StatusCode.RESOURCE_EXHAUSTED
        case ErrorKind.MODEL_FAILED | ErrorKind.INTERNAL:
            return grpc.StatusCode.INTERNAL
        case ErrorKind.UNSUPPORTED:
            return grpc.StatusCode.UNIMPLEMENTED
        case ErrorKind.MODEL_NOT_READY:
            return grpc.StatusCode.UNAVAILABLE
        case ErrorKind.DEADLINE_EXCEEDED:
            return grpc.StatusCode.DEADLINE_EXCEEDED
        case ErrorKind.CANCELLED:
            return grpc.StatusCode.CANCELLED
        case _:
            assert_never(kind)
