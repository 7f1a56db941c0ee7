"""Answers to what never becomes a request, written below the application."""

import http

import msgspec

__all__ = ("refusal",)


def refusal(status: int, message: str, retry_after: int | None = None) -> bytes:
    """A whole answer over HTTP/1.1 with ``{"error": message}``, after which the connection is closed."""
    body = msgspec.json.encode({"error": message})
    again = "" if retry_after is None else f"retry-after: {retry_after}\r\n"
    head = (
        f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{again}connection: close\r\n\r\n"
    )
    return head.encode("ascii") + body
