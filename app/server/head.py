"""HEAD, which load balancers probe with, wherever there is an answer to GET that costs little."""

from typing import Any

from litestar import Litestar
from litestar.types import Message, Scope, Send

__all__ = ("AnsweringHead",)

_COSTLY = ("/inferences", "/page")
"""Where GET may be a long export, or never end."""


class AnsweringHead(Litestar):
    """Litestar, whose routes for GET answer HEAD too: with the same status and headers, and without a body."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request, or live through the application's life."""
        if _asks_for_head(scope):
            scope, send = {**scope, "method": "GET"}, _without_body(send)
        await super().__call__(scope, receive, send)


def _asks_for_head(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] != "HEAD":
        return False
    # The routes take several slashes for one.
    return not f"/{scope['path'].lstrip('/')}".startswith(_COSTLY)


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head
