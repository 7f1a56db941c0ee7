"""Reject requests that a proxy before the server could read in another way, or that this server cannot read."""

import msgspec
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp, HTTPScope, Receive, Scope, Send


def reject_bad_framing(app: ASGIApp) -> ASGIApp:
    """Return an application that rejects such requests before `app`, and closes their connections (RFC 9112)."""

    async def checked_app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (rejection := _rejection(scope)) is not None:
            status, message = rejection
            body = msgspec.json.encode({"error": message})
            response = ASGIResponse(body=body, status_code=status, headers={"connection": "close"})
            await response(scope, receive, send)
            return
        await app(scope, receive, send)

    return checked_app


def _rejection(scope: HTTPScope) -> tuple[int, str] | None:
    """Return the status and the message with which a request is rejected; None if it is not."""
    hosts, encoding = 0, None
    for name, value in scope["headers"]:
        if name == b"host":
            hosts += 1
        elif name == b"transfer-encoding":
            encoding = value if encoding is None else encoding + b"," + value
    if hosts != 1 and (hosts or scope["http_version"] == "1.1"):
        return 400, f"Expected one Host header, got {hosts}"
    if encoding is not None:
        if scope["http_version"] == "1.0":
            return 400, "HTTP/1.0 has no Transfer-Encoding"
        if encoding.strip().lower() != b"chunked":
            return 501, "Expected chunked as Transfer-Encoding, got something else"
    return None
