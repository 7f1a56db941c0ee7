"""Serve several applications on several ports of one server, which drains and stops them together."""

from collections.abc import Mapping

import msgspec
from litestar import Litestar
from litestar.types import ASGIApp, Receive, Scope, Send

__all__ = ("SecondaryListener", "route_by_port")


class SecondaryListener(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An application that listens on a port besides the main one.

    Attributes:
        name: its name in the start message.
        app: the application.
        guarded_app: the application behind the checks of `cross_site`; this one is served.
        port: the port to listen on; 0 for any free one.
    """

    name: str
    app: Litestar
    guarded_app: ASGIApp
    port: int


def route_by_port(main_app: ASGIApp, apps_by_port: Mapping[int, ASGIApp]) -> ASGIApp:
    """Return an application that routes each request by its port: to one of `apps_by_port`, or to `main_app`."""

    async def route(scope: Scope, receive: Receive, send: Send) -> None:
        app = main_app
        if scope["type"] == "http" and scope["server"] is not None:
            app = apps_by_port.get(scope["server"][1] or 0, main_app)
        await app(scope, receive, send)

    return route
