"""Support HEAD, which load balancers use for probes, on every GET route with a cheap response."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from litestar import Litestar
from litestar.routes import HTTPRoute
from litestar.types import Message, Scope, Send

_COSTLY_PREFIXES = ("/inferences", "/page")
"""Path prefixes where GET may return a long export, or a stream without an end."""
_STATUSES_WITH_ALLOW = (204, 405)
"""Status codes of responses with the header Allow."""


class HeadSupport(Litestar):
    """Extend Litestar so that GET routes handle HEAD with the same status and headers, without a body."""

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Handle one request, or the lifespan of the application."""
        if scope["type"] == "http":
            supports_head = _supports_head(scope)
            if scope["method"] == "HEAD" and supports_head:
                scope, send = {**scope, "method": "GET"}, _without_body(send)
            send = self._with_allowed_methods(scope, send, supports_head)
        await super().__call__(scope, receive, send)

    @cached_property
    def _methods_by_path(self) -> Mapping[str, set[str]]:
        return {route.path_format: set(route.methods) for route in self.routes if isinstance(route, HTTPRoute)}

    def _with_allowed_methods(self, scope: Any, send: Send, supports_head: bool) -> Send:
        """Wrap `send` so that Allow lists all methods of the path in responses to OPTIONS and in 405."""

        async def send_methods(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] in _STATUSES_WITH_ALLOW:
                headers = [
                    (name, self._allowed_methods(scope, value, supports_head) if name.lower() == b"allow" else value)
                    for name, value in message["headers"]
                ]
                message = {**message, "headers": headers}
            await send(message)

        return send_methods

    def _allowed_methods(self, scope: Any, value: bytes, supports_head: bool) -> bytes:
        methods = {method.strip() for method in value.decode("ascii").split(",")}
        if scope["method"] == "OPTIONS":
            # Litestar's response lists only the methods of the first handler on the path.
            methods |= self._methods_by_path.get(scope.get("path_template"), set())
        if supports_head and "GET" in methods:
            methods.add("HEAD")
        return ", ".join(sorted(methods)).encode("ascii")


def _supports_head(scope: Scope) -> bool:
    # The router treats several slashes as one.
    return not f"/{scope['path'].lstrip('/')}".startswith(_COSTLY_PREFIXES)


def _without_body(send: Send) -> Send:
    async def send_head(message: Message) -> None:
        if message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await send(message)

    return send_head
