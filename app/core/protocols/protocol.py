"""The interface of an HTTP protocol."""

from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import attrgetter
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec
from litestar import Request, Response

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.protocols.inference_call import HttpResponse, RequestHead, StartedCall
from tasks.inference.error import ErrorKind, InferenceError

Permission = Literal["open", "infer", "read", "label", "admin"]
"""``infer``: run models and read their metadata. ``read``: see recordings and other server data. ``label``: write their
truths. ``admin``: change what is served. ``open``: none, for health probes. None of them includes another."""

PERMISSIONS: tuple[Permission, ...] = ("infer", "read", "label", "admin")
"""The permissions that can be granted to a client."""


HttpRequest = Request[Any, Any, Any]

Method = Literal["GET", "POST", "PUT", "DELETE"]


INFER_FAILURES = (400, 404, 413, 429, 500, 503)
"""HTTP statuses of an inference that is rejected or fails; see `app.core.protocols.status`."""


class QueryParameter(msgspec.Struct, frozen=True, kw_only=True):
    """A query parameter of a URL, with its JSON Schema."""

    name: str
    summary: str
    schema: Mapping[str, object] = msgspec.field(default_factory=lambda: {"type": "string"})


StartCall = Callable[[RequestHead, bytes, RequestContext], StartedCall | Coroutine[Any, Any, StartedCall]]


class Endpoint(msgspec.Struct, frozen=True, eq=False):
    """An operation of the server and, if a protocol serves it, how to answer its requests.

    Attributes:
        path: the path in Litestar's notation; the parameter `target` is the segment with the model's name.
        summary: description for OpenAPI.
        method: the HTTP method.
        verb: the part after the target and a colon, as in ``/v1/models/<target>:predict``; None without a verb.
        query: the query parameters.
        body: the type of a JSON body; None without a body, or if it is not JSON.
        answer: the type of a JSON response; None for any object, bytes if it is not JSON.
        error: the type of an error body; None for ``{"error": "..."}``.
        media_types: media types of bodies that are not JSON, in requests and answers.
        answer_media_types: media types of answers only, such as server-sent events.
        body_required: whether a request with `body` must have one.
        failures: HTTP statuses of errors.
        statuses: HTTP statuses of kinds of errors, if they differ from `app.core.protocols.status`.
        permission: the permission that a client needs; ``admin`` by default.
        changes_state: whether it changes the server's state although its method is GET.
        handle: returns the response or an object to send as JSON, or awaits one of them. Raises an
            `InferenceError`, which the server formats for the protocol. None for an inference, and for a protocol with
            its own port.
        start: for an inference, creates its call from the head and the decompressed body, or raises an
            `InferenceError`. It may be a coroutine, for work that would block the event loop. None for other
            operations.
        accepts_target: whether a target belongs to this protocol, for paths that several protocols share.
        queue_model: for an inference, returns the model in whose queue a request waits; empty if its body names it.
            Called once: `start` finds the result as `model_name` of its context. While that queue is full, requests are
            rejected before their body is read. None for other operations.
    """

    path: str
    summary: str = ""
    method: Method = "GET"
    verb: str | None = None
    query: Sequence[QueryParameter] = ()
    body: Any = None
    answer: Any = None
    error: Any = None
    media_types: Sequence[str] = ()
    answer_media_types: Sequence[str] = ()
    body_required: bool = True
    failures: Sequence[int] = ()
    statuses: Mapping[ErrorKind, int] = msgspec.field(default_factory=dict[ErrorKind, int])
    permission: Permission = "admin"
    changes_state: bool = False
    handle: Callable[[HttpRequest], object] | None = None
    start: StartCall | None = None
    accepts_target: Callable[[str], bool] | None = None
    queue_model: Callable[[RequestHead], str] | None = None


infer_endpoint = partial(
    Endpoint, method="POST", failures=INFER_FAILURES, permission="infer", queue_model=attrgetter("target")
)
"""Return an endpoint that runs a model. By default, the target of its path is the model in whose queue it waits."""

read_endpoint = partial(Endpoint, permission="infer")
"""Return an endpoint that describes models or the server."""

read_operation = partial(Endpoint, method="GET", permission="read")
"""Return a GET operation of the server itself."""

probe_endpoint = partial(Endpoint, permission="open")
"""Return an endpoint for health probes, which send no credentials."""


class HttpProtocol(Protocol):
    """A wire protocol: its endpoints over an engine, and its error body.

    Attributes:
        name: the name in settings and logs.
        prefixes: prefixes of paths, such as ``/grps/v1``, that only this protocol has. Routing errors below them have
            the body of `routing_error`.
        request_headers: headers, in lower case, that pages of other origins may send to it.
        response_headers: headers that they may read.
    """

    name: str
    prefixes: Sequence[str] = ()
    request_headers: Sequence[str] = ()
    response_headers: Sequence[str] = ()

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        """Return all endpoints."""
        ...

    def error_body(self, error: InferenceError, /) -> bytes:
        """Return the body of a response for `error`; by default ``{"error": "..."}``."""
        return msgspec.json.encode({"error": str(error)})

    def routing_error(self, _: int, message: str, /) -> bytes:
        """Return the body of a response with an HTTP status, when no endpoint matches."""
        return msgspec.json.encode({"error": message})


@runtime_checkable
class HttpListener(HttpProtocol, Protocol):
    """A protocol with its own port, where it handles every request.

    Its endpoints describe it in OpenAPI. Those with `start` answer inferences: their paths are compared as received,
    percent-encoded and without a query. Only the case of the verb counts. The handler answers all other requests.

    Attributes:
        title: the name in the start message and in OpenAPI.
    """

    title: str

    def error_response(self, error: InferenceError, /) -> HttpResponse:
        """Return the answer for an error of an inference."""
        ...

    def permission(self, request: HttpRequest, /) -> Permission:
        """Return the permission that a request needs."""
        ...

    def handler(self, engine: Engine, /) -> Callable[[HttpRequest], Awaitable[Response[Any]]]:
        """Return a handler for requests of any method and path, including errors."""
        ...


class ModelReady(msgspec.Struct, frozen=True):
    """The readiness of a model; `ready` is always true, because a model that is not ready is an error."""

    name: str
    ready: bool = True


@contextmanager
def report_rejections(engine: Engine, context: RequestContext) -> Generator[None]:
    """Report an error inside the block: it rejects the request before the work on it starts."""
    try:
        yield
    except InferenceError as error:
        raise engine.report_rejected(context, error) from None


def json_response(content: bytes, status: int = 200) -> Response[bytes]:
    """Return a response with encoded JSON."""
    return Response(content, status_code=status, media_type="application/json")
