"""What an HTTP protocol offers the server."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
from litestar import Request, Response

from app.engine.engine import Engine
from app.protocols.permission import Permission
from tasks.exchange.error import InferenceError

__all__ = (
    "INFER_FAILURES",
    "Endpoint",
    "HttpListener",
    "HttpProtocol",
    "HttpRequest",
    "Method",
    "Operation",
    "PrefixOwner",
    "QueryParameter",
    "json_response",
)

HttpRequest = Request[Any, Any, Any]

Method = Literal["GET", "POST"]


INFER_FAILURES = (400, 404, 413, 429, 500, 503)
"""How an inference can be refused (`app.protocols.status`), or fail."""


class QueryParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter in the query of an address.

    Attributes:
        name: as it is written there.
        summary: what it says.
        schema: what it may be, as JSON Schema has it.
    """

    name: str
    summary: str
    schema: Mapping[str, object] = msgspec.field(default_factory=lambda: {"type": "string"})


class Operation(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """What is said of one thing that the server does.

    Attributes:
        method: HTTP's.
        path: in Litestar's notation; a parameter called `target` is the segment that names a model.
        verb: what stands behind the target and a colon, as in ``/v1/models/<target>:predict``; None where nothing does.
        summary: what it does, for the service's own description (OpenAPI).
        query: what the query of its address may have.
        body: the type of a JSON body, None where there is none or it is not JSON.
        answer: the type of a JSON answer, None where it is any object, and bytes where it is not JSON.
        refusal: the type of a refusal's body, None where it is ``{"error": "..."}``.
        media_types: of bodies that are not JSON.
        failures: the statuses of its refusals.
        permission: what its sender has to be allowed.
    """

    method: Method
    path: str
    verb: str | None = None
    summary: str = ""
    query: Sequence[QueryParameter] = ()
    body: Any = None
    answer: Any = None
    refusal: Any = None
    media_types: Sequence[str] = ()
    failures: Sequence[int] = ()
    permission: Permission = "infer"


class Endpoint(Operation, frozen=True, kw_only=True, eq=False):
    """One thing a protocol serves.

    Attributes:
        handle: answers a request, with bytes or a stream of them, or raises an `InferenceError`, to which the server
            gives its protocol's shape.
        claims: whether a target is this protocol's, for paths on which several protocols meet.
    """

    handle: Callable[[HttpRequest], Awaitable[Response[Any]]]
    claims: Callable[[str], bool] | None = None


class HttpProtocol(Protocol):
    """One wire protocol: a name, what it serves over an engine, and the shape of its errors."""

    @property
    def name(self) -> str:
        """What settings and logs call it."""
        ...

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        """Everything it serves."""
        ...

    def error_body(self, error: InferenceError, /) -> bytes:
        """The body of a response that says `error`."""
        ...


@runtime_checkable
class PrefixOwner(Protocol):
    """A protocol to which all paths under a prefix belong: what goes wrong before it is reached has its shape too."""

    @property
    def prefix(self) -> str:
        """Such as ``/grps/v1``, without a slash at the end."""
        ...

    def routing_error(self, status: int, message: str, /) -> bytes:
        """The body of a response with an HTTP `status` that no endpoint gave."""
        ...


class HttpListener(HttpProtocol, Protocol):
    """A protocol with a port of its own, where it answers whatever comes; its endpoints only describe it."""

    @property
    def title(self) -> str:
        """What people call it."""
        ...

    def permission(self, request: HttpRequest, /) -> Permission:
        """What the sender of a request has to be allowed."""
        ...

    def answer(self, engine: Engine, /) -> Callable[[HttpRequest], Awaitable[Response[Any]]]:
        """What answers a request of any method and path, its refusals included."""
        ...


def json_response(content: bytes, status: int = 200) -> Response[bytes]:
    """A response of JSON that is written already."""
    return Response(content, status_code=status, media_type="application/json")
