"""Build responses to invalid requests below the application."""

import http

import msgspec

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus}
"""The first line of a response, by status."""

STATUS_LINES[499] = b"HTTP/1.1 499 \r\n"


def raw_response(status: int, message: str, retry_after: int | None = None) -> bytes:
    """Return a complete HTTP/1.1 response with ``{"error": message}``, after which the connection is closed."""
    body = msgspec.json.encode({"error": message})
    # At this level only the method CONNECT is rejected, on every path.
    allow = "allow: GET, HEAD, OPTIONS, POST\r\n" if status == http.HTTPStatus.METHOD_NOT_ALLOWED else ""
    retry = "" if retry_after is None else f"retry-after: {retry_after}\r\n"
    head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{allow}{retry}connection: close\r\n\r\n"
    return STATUS_LINES[status] + head.encode("ascii") + body
