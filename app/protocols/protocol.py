"""What an HTTP protocol offers the server."""

from typing import Protocol

from litestar import Router

from app.engine.engine import Engine
from tasks.exchange.error import InferenceError

__all__ = ("HttpProtocol",)


class HttpProtocol(Protocol):
    """One wire protocol: a name, its routes over an engine, and the shape of its errors."""

    @property
    def name(self) -> str:
        """What settings and logs call it."""
        ...

    def router(self, engine: Engine, /) -> Router:
        """Its routes. An `InferenceError` that they raise is answered by the router itself."""
        ...

    def error_body(self, error: InferenceError, /) -> bytes:
        """The body of a response that says `error`."""
        ...
