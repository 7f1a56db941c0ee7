"""The HTTP and gRPC status of each kind of error."""

from collections.abc import Mapping

import grpc

from tasks.inference.error import ErrorKind

_STATUSES: Mapping[ErrorKind, tuple[int, grpc.StatusCode]] = {
    ErrorKind.INVALID_REQUEST: (400, grpc.StatusCode.INVALID_ARGUMENT),
    ErrorKind.UNSUPPORTED: (400, grpc.StatusCode.UNIMPLEMENTED),
    ErrorKind.UNAUTHENTICATED: (401, grpc.StatusCode.UNAUTHENTICATED),
    ErrorKind.PERMISSION_DENIED: (403, grpc.StatusCode.PERMISSION_DENIED),
    ErrorKind.MODEL_NOT_FOUND: (404, grpc.StatusCode.NOT_FOUND),
    # A retry cannot succeed, and gRPC clients retry after RESOURCE_EXHAUSTED. Only gRPC's own limit on message bytes
    # gives that status.
    ErrorKind.TOO_LARGE: (413, grpc.StatusCode.INVALID_ARGUMENT),
    ErrorKind.OVERLOADED: (429, grpc.StatusCode.RESOURCE_EXHAUSTED),
    # RFC 9110 has no status for a client that disconnected; nginx uses this one.
    ErrorKind.CANCELLED: (499, grpc.StatusCode.CANCELLED),
    ErrorKind.MODEL_FAILED: (500, grpc.StatusCode.INTERNAL),
    ErrorKind.INTERNAL: (500, grpc.StatusCode.INTERNAL),
    ErrorKind.MODEL_NOT_READY: (503, grpc.StatusCode.UNAVAILABLE),
    ErrorKind.DEADLINE_EXCEEDED: (504, grpc.StatusCode.DEADLINE_EXCEEDED),
}


def http_status(kind: ErrorKind) -> int:
    """Return the HTTP status code (RFC 9110) of `kind`."""
    return _STATUSES[kind][0]


def grpc_status(kind: ErrorKind) -> grpc.StatusCode:
    """Return the gRPC status code of `kind`."""
    return _STATUSES[kind][1]
