"""Reject requests by their headers while the server is overloaded, before the body and the framework.

Such a rejection costs a twentieth of one in the framework. After it, reading from the connection pauses, and resumes at
a limited rate for all connections. Requests of a client that ignores `Retry-After` thus wait in its socket buffer.
"""

import asyncio
import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from re import Pattern
from typing import Generic, TypeVar

import msgspec

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.engine.request_context import request_id as new_request_id
from app.core.protocols.http_inference import error_answer
from app.core.protocols.protocol import Endpoint, HttpListener, HttpProtocol
from app.core.protocols.request_info import BASE_ID_HEADER, REQUEST_ID_HEADER, RETRY_AFTER, valid_id
from app.core.server.http.direct_request import STREAMED_PATHS, UNPRINTABLE, DirectRoute
from tasks.inference.error import ErrorKind, InferenceError

_RESUMES_PER_SECOND = 125
"""Number of connections with rejected requests that are read again each second."""

_MAX_PAUSE_SECONDS = 2.0
"""Seconds after which every connection is read again."""

_MIN_PAUSE_SECONDS = 0.02
_REPORT_SECONDS = 0.5
_MAX_KEYS = 64
_RETRY_AFTER_HEADER = RETRY_AFTER.encode()

OVERLOADED = "The server has reached its limit of requests in flight; try again later"
"""Message for clients before authentication: it must not reveal anything about models."""
_STATUS_LINE = b"HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\n"
_ECHOED_HEADERS = {header.encode(): header for header in (REQUEST_ID_HEADER, BASE_ID_HEADER)}

Headers = Sequence[tuple[bytes, bytes]]


class Route(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A route whose requests can be rejected early.

    Attributes:
        pattern: regular expression of the path with one group, the target.
        overload: returns the error with which a request for a target is rejected now; None otherwise.
        body: builds the body of a rejection.
        report: counts and logs rejections, given a message, a target, the first request id, and the number.
        track_arrival: counts a request whose body is arriving, until the returned function is called.
        accepts_target: returns whether the route handles a target, for a path that several routes share.
        direct: how its requests are answered without the application; None if they are not.
    """

    method: bytes
    pattern: str
    overload: Callable[[str], InferenceError | None]
    body: Callable[[InferenceError], bytes]
    report: Callable[[str, str, str, int], None]
    track_arrival: Callable[[], Callable[[], object]] | None = None
    accepts_target: Callable[[str], bool] | None = None
    direct: DirectRoute | None = None


KeyT = TypeVar("KeyT")


class RefusalCounts(Generic[KeyT]):
    """Count rejections and report them twice a second: a report for each would cost more than the rejection.

    The report gets a key, the request id of its first rejection, and the number.
    """

    def __init__(self, report: Callable[[KeyT, str, int], None]) -> None:
        self._report = report
        self._counts: dict[KeyT, tuple[str, int]] = {}

    def add(self, key: KeyT, request_id: str, fallback_key: KeyT | None = None) -> None:
        """Count one rejection for `key`, or for `fallback_key` if there are too many keys, which clients can invent."""
        if not self._counts:
            asyncio.get_running_loop().call_later(_REPORT_SECONDS, self._flush)
        if fallback_key is not None and key not in self._counts and len(self._counts) >= _MAX_KEYS:
            key = fallback_key
        first_request_id, count = self._counts.get(key, (request_id, 0))
        self._counts[key] = (first_request_id, count + 1)

    def _flush(self) -> None:
        counts, self._counts = self._counts, {}
        for key, (request_id, count) in counts.items():
            self._report(key, request_id, count)


def _report(key: tuple[Route, str, str], request_id: str, count: int) -> None:
    route, target, message = key
    route.report(message, target, request_id, count)


class RouteTable:
    """Find the routes of the requests of one listener.

    After a path, the pattern `end` may follow: a listener with its own routing distinguishes a slash at the end.
    """

    def __init__(self, routes: Sequence[Route] = (), end: str = "/?") -> None:
        self._by_method: dict[bytes, tuple[Pattern[bytes], Sequence[Sequence[Route]]]] = {}
        for method in {route.method for route in routes}:
            by_pattern: dict[str, list[Route]] = {}
            for route in routes:
                if route.method == method:
                    by_pattern.setdefault(route.pattern, []).append(route)
            # One regular expression with a group for each pattern.
            pattern = re.compile(f"(?:{'|'.join(by_pattern)}){end}".encode())
            self._by_method[method] = pattern, list(by_pattern.values())

    def find(self, method: bytes, path: bytes) -> tuple[Route, str] | None:
        """Return the route and the target of a request; None if it is never rejected early."""
        if method not in self._by_method:
            return None
        pattern, routes = self._by_method[method]
        match = pattern.fullmatch(path)
        if match is None or match.lastindex is None:
            return None
        target = match[match.lastindex].decode("latin-1")
        for route in routes[match.lastindex - 1]:
            if route.accepts_target is None or route.accepts_target(target):
                return route, target
        return None


class LoadShedder:
    """Reject requests. All methods run in the event loop."""

    def __init__(self) -> None:
        self._next_resume = 0.0
        self._counts = RefusalCounts[tuple[Route, str, str]](_report)

    def refusal(self, route: Route, target: str, overload: InferenceError, headers: Headers, *, close: bool) -> bytes:
        """Count a rejection, and return the complete response, after which the connection closes if `close`."""
        echoed = {
            _ECHOED_HEADERS[name]: value for name, value in headers if name in _ECHOED_HEADERS and _is_echoed(value)
        }
        request_id = echoed.setdefault(REQUEST_ID_HEADER, new_request_id().encode())
        self._counts.add((route, target, overload.message), request_id.decode("latin-1"), (route, "", overload.message))
        body = route.body(overload)
        fields = [
            _STATUS_LINE,
            b"content-length: %d\r\n%s: %d\r\n" % (len(body), _RETRY_AFTER_HEADER, overload.retry_after),
        ]
        fields += [b"%s: %s\r\n" % (name.encode(), value) for name, value in echoed.items()]
        fields.append(b"connection: close\r\n\r\n" if close else b"\r\n")
        return b"".join([*fields, body])

    def pause(self) -> float:
        """Return how many seconds to pause reading on a connection after a rejection."""
        now = time.monotonic()
        self._next_resume = min(max(self._next_resume, now) + 1 / _RESUMES_PER_SECOND, now + _MAX_PAUSE_SECONDS)
        pause = self._next_resume - now
        return pause if pause >= _MIN_PAUSE_SECONDS else 0.0


def inference_routes(engine: Engine, protocols: Sequence[HttpProtocol], *, secured: bool) -> Sequence[Route]:
    """Return the routes of all inferences in `protocols` of one port.

    If clients must authenticate (`secured`), a rejection does not reveal which model is busy.
    """
    endpoints_by_pattern: dict[str, list[tuple[HttpProtocol, Endpoint]]] = {}
    for protocol in protocols:
        for endpoint in protocol.endpoints(engine):
            if endpoint.queue_model is not None:
                endpoints_by_pattern.setdefault(_pattern(endpoint), []).append((protocol, endpoint))
    routes: list[Route] = []
    for pattern, candidates in endpoints_by_pattern.items():
        # Use the order of the dispatcher: endpoints that claim some targets come first.
        for protocol, endpoint in sorted(candidates, key=lambda pair: pair[1].accepts_target is None):
            routes.append(_inference_route(engine, protocol, endpoint, pattern, secured=secured))
    return routes


def _inference_route(
    engine: Engine, protocol: HttpProtocol, endpoint: Endpoint, pattern: str, *, secured: bool
) -> Route:
    def overload(target: str) -> InferenceError | None:
        if engine.has_idle_worker():
            return None
        if not secured:
            return engine.overload(model_name_of(target))
        error = engine.overload(None)
        return error and InferenceError(error.kind, OVERLOADED, retry_after=error.retry_after)

    def model_name_of(target: str) -> str | None:
        with suppress(InferenceError):
            return endpoint.queue_model(target) if endpoint.queue_model is not None else None
        return None

    def report(message: str, target: str, request_id: str, count: int) -> None:
        context = RequestContext(
            protocol=protocol.name, request_id=request_id, model_name=model_name_of(target) or "", count=count
        )
        engine.report_refused_unread(context, InferenceError(ErrorKind.OVERLOADED, message))

    return Route(
        method=endpoint.method.encode(),
        pattern=pattern,
        accepts_target=endpoint.accepts_target,
        overload=overload,
        body=protocol.error_body,
        report=report,
        track_arrival=engine.track_arrival,
        direct=_direct_route(protocol, endpoint),
    )


def _direct_route(protocol: HttpProtocol, endpoint: Endpoint) -> DirectRoute | None:
    if endpoint.start is None or "{version" in endpoint.path:
        return None
    is_streamed = any(path in endpoint.path for path in STREAMED_PATHS)
    return DirectRoute(
        protocol=protocol.name,
        start=endpoint.start,
        error_answer=protocol.error_answer if isinstance(protocol, HttpListener) else partial(error_answer, protocol),
        permission=endpoint.permission,
        compressible=not is_streamed,
        reads_query=bool(endpoint.query),
    )


def _pattern(endpoint: Endpoint) -> str:
    """Return a regular expression of the path with one group for the target."""
    path = re.sub(r"\{(\w+):\w+\}", lambda match: "([^/%:]+)" if match[1] == "target" else "[^/%:]+", endpoint.path)
    verb = "" if endpoint.verb is None else f":{endpoint.verb}"
    return f"{path}{verb}" if "(" in path else f"{path}{verb}()"


def _is_echoed(value: bytes) -> bool:
    return valid_id(value.decode("latin-1")) is not None and not UNPRINTABLE.search(value)
