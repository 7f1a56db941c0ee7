"""The errors of Ray Serve's HTTP proxy as JSON, with a status that clients retry."""

import importlib
from collections.abc import Sequence
from typing import Any

import msgspec
from litestar.types import ASGIApp, HTTPResponseStartEvent, Message, Receive, Scope, Send

_LOST = b'{"error":"The replica that answered this request was lost; send the request again"}'
_RETRY_SECONDS = b"1"
_FIRST_ERROR = 400
_REPLACED = (b"content-type", b"content-length")


def ray_proxy_middlewares() -> list[Any]:
    """Return the middlewares of Ray Serve's proxy: JSON errors, and 503 when a replica of the ingress is lost.

    Ray reads their name from RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH.
    """
    return [importlib.import_module("starlette.middleware").Middleware(ProxyErrors)]


def without_request_id(app: ASGIApp) -> ASGIApp:
    """Return `app` without its response header `x-request-id`: Ray's proxy adds its own, which has the same value."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_others(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [header for header in message["headers"] if header[0] != b"x-request-id"]
            await send(message)

        await app(scope, receive, send_others)

    return wrapped


class ProxyErrors:
    """Answer 503 for a request whose ingress replica was lost, and turn the proxy's own plain errors into JSON.

    The proxy ends such a request without a response, which its server turns into a plain 500.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False
        plain_error: HTTPResponseStartEvent | None = None
        text = b""

        async def send_as_json(message: Message) -> None:
            nonlocal started, plain_error, text
            started = True
            if message["type"] == "http.response.start" and _is_plain_error(message):
                plain_error = message
            elif plain_error is None:
                await send(message)
            elif message["type"] == "http.response.body":
                text += message.get("body", b"")
                if not message.get("more_body", False):
                    body = msgspec.json.encode({"error": text.decode(errors="replace")})
                    kept = [(name, value) for name, value in plain_error["headers"] if name not in _REPLACED]
                    await _respond(send, plain_error["status"], kept, body)

        await self._app(scope, receive, send_as_json)
        if not started:
            await _respond(send, 503, [(b"retry-after", _RETRY_SECONDS)], _LOST)


def _is_plain_error(message: HTTPResponseStartEvent) -> bool:
    content_type = next((value for name, value in message["headers"] if name.lower() == b"content-type"), b"text/plain")
    return message["status"] >= _FIRST_ERROR and content_type.startswith(b"text/plain")


async def _respond(send: Send, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
    described = [*headers, (b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": described})
    await send({"type": "http.response.body", "body": body, "more_body": False})
