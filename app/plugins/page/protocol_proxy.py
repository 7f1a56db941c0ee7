"""Proxy protocols on other ports, which a browser cannot reach from the page.

The page shows the messages of each protocol, so the main port forwards requests to the same application object.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from litestar import asgi
from litestar.handlers import ASGIRouteHandler
from litestar.types import ASGIApp, Receive, Scope, Send

from app.core.server.auth.http_access import requires

if TYPE_CHECKING:
    from app.core.server.grpc.server import GrpcServer
    from app.core.server.serving import Listener

# The other application authorizes the request itself.
_NO_PERMISSION = requires("open")
_FORWARDED_KEYS = frozenset(
    {"type", "asgi", "http_version", "method", "scheme", "query_string", "root_path", "client", "server", "extensions"}
)


class ProtocolProxy:
    """Provide proxies to protocols on other ports.

    Args:
        port_names: names of the protocols with HTTP ports of their own.
        port: returns the port of a protocol, once the server is complete.
        grpc: returns the gRPC server, once the server is complete; None if gRPC is disabled.
    """

    def __init__(
        self,
        port_names: "Sequence[str]" = (),
        port: "Callable[[str], Listener] | None" = None,
        grpc: "Callable[[], GrpcServer | None] | None" = None,
    ) -> None:
        self._ports = {} if port is None else {name: partial(port, name) for name in port_names}
        self._grpc = grpc

    @property
    def ports(self) -> Mapping[str, int]:
        """Return the ports by the name of the protocol, without disabled protocols."""
        ports = {name: port().port for name, port in self._ports.items()}
        server = self._grpc and self._grpc()
        return ports if server is None else {"grpc": server.port, **ports}

    @property
    def handlers(self) -> list[ASGIRouteHandler]:
        return [
            asgi(path, is_mount=True, copy_scope=True, opt=_NO_PERMISSION)(_strip_prefix(port, path))
            for port, path in ((port, f"/page/{name}") for name, port in self._ports.items())
        ]


def _strip_prefix(port: "Callable[[], Listener]", prefix: str) -> ASGIApp:
    """Return the application of a port, mounted under a prefix that it does not see."""

    async def unprefixed_app(scope: Scope, receive: Receive, send: Send) -> None:
        raw_path = scope["raw_path"].partition(prefix.encode())[2]
        # The main application already compresses the response.
        headers = [(name, value) for name, value in scope["headers"] if name != b"accept-encoding"]
        # Drop the state of the main application, such as its response headers.
        scope_fields = {name: value for name, value in scope.items() if name in _FORWARDED_KEYS}
        paths = {"path": raw_path.decode("latin-1"), "raw_path": raw_path}
        unprefixed_scope: Any = {**scope_fields, **paths, "headers": headers, "state": {}}
        await port().app(unprefixed_scope, receive, send)

    return unprefixed_app
