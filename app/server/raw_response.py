"""Build responses to invalid requests below the application."""

import http

import msgspec

__all__ = ("raw_response",)


def raw_response(status: int, message: str, retry_after: int | None = None) -> bytes:
    """Return a complete HTTP/1.1 response with ``{"error": message}``, after which the connection is closed."""
    body = msgspec.json.encode({"error": message})
    # At this level only the method CONNECT is rejected, on every path.
    allow = "allow: GET, HEAD, OPTIONS, POST\r\n" if status == http.HTTPStatus.METHOD_NOT_ALLOWED else ""
    retry = "" if retry_after is None else f"retry-after: {retry_after}\r\n"
    head = (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{allow}{retry}connection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
