"""Serve several applications on several ports of one server, which drains and stops them together."""

from collections.abc import Mapping

import msgspec
from litestar import Litestar
from litestar.types import ASGIApp, Receive, Scope, Send

__all__ = ("Beside", "by_port")


class Beside(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An application that listens on a port besides the main one.

    Attributes:
        name: its name in the start message.
        app: the application.
        guarded: the application behind the checks of `cross_site`; this one is served.
        port: the port to listen on; 0 for any free one.
    """

    name: str
    app: Litestar
    guarded: ASGIApp
    port: int


def by_port(main: ASGIApp, others: Mapping[int, ASGIApp]) -> ASGIApp:
    """Return an application that routes each request by its port: to one of `others`, or to `main`."""

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        app = main
        if scope["type"] == "http" and scope["server"] is not None:
            app = others.get(scope["server"][1] or 0, main)
        await app(scope, receive, send)

    return choose
