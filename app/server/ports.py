"""Several applications on several ports of one server, which drains and stops them together."""

from collections.abc import Mapping

import msgspec
from litestar import Litestar
from litestar.types import ASGIApp, Receive, Scope, Send

__all__ = ("Beside", "by_port")


class Beside(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An application that listens beside the main one.

    Attributes:
        name: what the announcement at the start calls it.
        app: what answers there.
        port: to listen on; 0 for any free one.
    """

    name: str
    app: Litestar
    port: int


def by_port(main: ASGIApp, others: Mapping[int, ASGIApp]) -> ASGIApp:
    """An application that hands each request to the one of `others` whose port it came to, and all else to `main`."""

    async def choose(scope: Scope, receive: Receive, send: Send) -> None:
        app = main
        if scope["type"] == "http" and scope["server"] is not None:
            app = others.get(scope["server"][1] or 0, main)
        await app(scope, receive, send)

    return choose
