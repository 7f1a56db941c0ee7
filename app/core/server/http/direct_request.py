"""Answer the usual inference request without the ASGI application: from its headers to its response in one object.

Only requests take this way for which the application would do the same: a POST to the inference path of
a model, with headers that need no further rule, from a client with permission. The application answers all others,
through the same endpoints, and reports clients without permission.
"""

import gzip
import logging
import re
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from typing import Any

import msgspec

from app.core.engine.engine import Engine
from app.core.engine.request_job import RequestJob
from app.core.protocols.inference_call import HttpAnswer, InferenceCall, InferenceHead
from app.core.protocols.protocol import Permission, StartCall
from app.core.protocols.request_info import BASE_ID_HEADER, REQUEST_ID_HEADER, new_context
from app.core.server.auth.access_control import AccessControl
from app.core.server.auth.credentials import AUTHORIZATION, KEY_HEADER, Identity
from app.core.server.http.cross_site import is_allowed_host
from app.core.server.transport.request_parser import STATUS_LINES, ConnectionRequest
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.response import InferenceResponse

MIN_COMPRESSED_BYTES = 1000
"""Shorter responses are not compressed."""

GZIP_REFUSED = re.compile(r"gzip\s*;\s*q=0(?:\.0*)?\s*(?:,|$)")
"""Part of Accept-Encoding in which a client refuses gzip (RFC 9110, 12.4.2)."""

STREAMED_PATHS = ("generate_stream", "infer/predict", "/completions")
"""Parts of paths with streamed responses: compression would delay their chunks."""

_COMPRESSION_LEVEL = 1
_OTHER_RULES = frozenset(
    {
        b"content-encoding",
        b"expect",
        b"origin",
        b"referer",
        b"sec-fetch-site",
        b"streaming",
        b"transfer-encoding",
        b"upgrade",
        b"x-forwarded-for",
        b"x-forwarded-proto",
    }
)
"""Headers with which a request needs a rule of the application."""

_ANYBODY = Identity(name="", permissions=frozenset())
_CREDENTIALS = [(name.encode(), name) for name in (AUTHORIZATION, KEY_HEADER)]
UNPRINTABLE = re.compile(rb"[^\t\x20-\x7e\x80-\xff]")
_logger = logging.getLogger(__name__)


class DirectRoute(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """An inference path.

    Attributes:
        compressible: whether a long response is compressed for a client that accepts it.
        reads_query: whether requests may have a query.
    """

    protocol: str
    start: StartCall
    error_answer: Callable[[InferenceError], HttpAnswer]
    permission: Permission
    compressible: bool
    reads_query: bool


class DirectRoutes:
    """Decide which requests are answered directly.

    Args:
        hosts: names that `Host` may have besides the loopback names; None for any name.
        max_request_bytes: the application refuses longer bodies.
        access: authorizes clients; None to allow every client.
    """

    def __init__(
        self,
        engine: Engine,
        hosts: Collection[str] | None,
        max_request_bytes: int,
        access: AccessControl | None = None,
    ) -> None:
        self.engine = engine
        self._access = access
        self._max_request_bytes = max_request_bytes
        self._is_allowed_host = lru_cache(maxsize=64)(partial(is_allowed_host, hosts=hosts))

    def client_of(
        self, route: DirectRoute, url: bytes, headers: dict[bytes, bytes], body_length: int | None
    ) -> Identity | None:
        """Return the client of a request that is answered directly, `_ANYBODY` without authentication; otherwise None.

        Raises:
            AccessError: neither counted nor logged, which is up to the application.
        """
        if (
            body_length is None
            or body_length > self._max_request_bytes
            or (b"?" in url and not route.reads_query)
            or not _OTHER_RULES.isdisjoint(headers)
            or not self._is_allowed_host(headers.get(b"host"))
            or UNPRINTABLE.search(headers.get(b"x-request-id", b""))
            or UNPRINTABLE.search(headers.get(b"chariot-inference-base-id", b""))
        ):
            return None
        if self._access is None or route.permission == "open":
            return _ANYBODY
        credentials = [(name, headers[key].decode("latin-1")) for key, name in _CREDENTIALS if key in headers]
        return self._access.authorize(credentials, route.permission)


class DirectRequest(ConnectionRequest):
    """One request on a connection.

    Args:
        target: the segment of the path with the model's name.
        query: the query of the URL, still encoded.
        connection: writes the response and continues after it, or passes the request to the application.
    """

    def __init__(
        self,
        routes: DirectRoutes,
        route: DirectRoute,
        target: str,
        query: bytes,
        headers: Sequence[tuple[bytes, bytes]],
        client: Identity,
        connection: Any,
        *,
        keep_alive: bool,
    ) -> None:
        super().__init__(keep_alive=keep_alive)
        self._routes = routes
        self._route = route
        self._connection = connection
        self._call: InferenceCall | None = None
        self._job: RequestJob[HttpAnswer] | None = None
        texts: dict[str, str] = {}
        for name, value in headers:
            texts[name.decode("latin-1")] = value.decode("latin-1")
        self._head = head = InferenceHead(target=target, headers=texts, query=query.decode(errors="replace"))
        self.context = new_context(head.headers, route.protocol, connection.client[0] if connection.client else "")
        self.client = client
        self.context.client = client.name
        encodings = head.headers.get("accept-encoding", "")
        self._accepts_gzip = route.compressible and "gzip" in encodings and GZIP_REFUSED.search(encodings) is None

    def notify(self) -> None:
        """Cancel the work when the client has disconnected."""
        if self.disconnected and self._job is not None:
            self._job.cancel()

    def cancel(self) -> None:
        """Cancel because the server stops."""
        self.context.abort()
        if self._job is not None:
            # The server iterates over its requests, and a finished one leaves them.
            self._connection.loop.call_soon(self._job.cancel)

    def complete_body(self) -> None:
        """Start the work."""
        engine, context = self._routes.engine, self.context
        self.more_body = False
        body, self.body = bytes(self.body), bytearray()
        try:
            self._call = call = self._route.start(self._head, body, context)
        except InferenceError as error:
            self._respond(self._error_answer(engine.report_refused(context, error, self._head.target)))
            return
        if call is None:
            self._connection.pass_to_application(self, body)
            return
        self._connection.mark_body_arrived()
        encode = partial(self._encode, call) if self._accepts_gzip else call.encode
        try:
            self._job = engine.submit(context, call.model_name, call.decode, encode, self._finish)
        except InferenceError as error:
            self._respond(self._error_answer(error))

    def _error_answer(self, error: InferenceError) -> HttpAnswer:
        return self._route.error_answer(error if self._call is None else self._call.map_error_path(error))

    def _encode(self, call: InferenceCall, response: InferenceResponse) -> HttpAnswer:
        answer = call.encode(response)
        if len(answer.content) >= MIN_COMPRESSED_BYTES:
            return msgspec.structs.replace(
                answer,
                content=gzip.compress(answer.content, _COMPRESSION_LEVEL),
                headers=(*answer.headers, ("content-encoding", "gzip"), ("vary", "Accept-Encoding")),
            )
        return answer

    def _finish(self, job: RequestJob[HttpAnswer]) -> None:
        try:
            answer = job.result()
        except InferenceError as error:
            answer = self._error_answer(error)
        except BaseException:  # `SystemExit` from a codec must not stop the server
            _logger.exception("request failed", extra={"request_id": self.context.request_id})
            message = "Something went wrong in the server; see its log"
            answer = self._error_answer(InferenceError(ErrorKind.INTERNAL, message))
        self._respond(answer)

    def _respond(self, answer: HttpAnswer) -> None:
        context, connection = self.context, self._connection
        # The connection keeps this request until the next one, and needs neither its body nor its images.
        self._job = self._call = None
        if self.disconnected:
            return
        content = answer.content
        lines = [STATUS_LINES[answer.status]]
        for header in connection.connections.default_headers:
            lines.append(b"%s: %s\r\n" % header)  # noqa: PERF401
        lines.append(
            f"content-type: {answer.media_type}\r\ncontent-length: {len(content)}\r\n"
            f"{REQUEST_ID_HEADER}: {context.request_id}\r\n".encode("latin-1")
        )
        headers = [*answer.headers, *context.response_headers.items()]
        if context.base_id is not None:
            headers.append((BASE_ID_HEADER, context.base_id))
        if headers:
            lines.append("".join(f"{name}: {value}\r\n" for name, value in headers).encode("latin-1"))
        lines.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        lines.append(content)
        self.response_started = self.response_complete = True
        connection.finish_direct(self, b"".join(lines))
