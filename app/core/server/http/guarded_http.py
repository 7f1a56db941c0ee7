"""uvicorn's HTTP/1.1 protocol with bounded heads: bytes, seconds and connections, and no upgrade.

The parser loses the body of a request that asks for another protocol, and reads it as the next request. So it never
sees such a head as it is: without the header Upgrade, the client gets its answer over HTTP/1.1, as RFC 9110 allows.
"""

import asyncio
import http
import re
from collections import deque
from typing import Any, cast

import httptools
import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.core.server.http.exchange import BODY_ARRIVED
from app.core.server.http.transport import Transport

_END = b"\r\n\r\n"
_UPGRADE = re.compile(rb"\r\n(?:upgrade|http2-settings):[\t\x20-\x7e\x80-\xff]*(?=\r\n)", re.IGNORECASE)
"""Valid fields only, as the parser rejects others."""
_CONNECTION = re.compile(rb"(\r\nconnection:)([^\r\n]*)", re.IGNORECASE)
_UPGRADE_OPTIONS = (b"upgrade", b"http2-settings")
_AUTHORITY = re.compile(rb"[\w.\-\[\]:%]+")
_TLS_HELLO = b"\x16\x03"
_TLS_ADVICE = (
    "Expected HTTP, got TLS: use http:// for this port, or give the server a certificate with --tls-cert and --tls-key"
)
_MAPPED = "::ffff:"

_MAX_FRAMING = 9
"""Bytes that the framing of a body may take for each byte of it, and the byte: a chunk of one byte has five."""

_ARRIVAL_SECONDS, _CLOSE_SECONDS = 0.05, 1.0
_LINGER_SECONDS, _SHORT_LINGER_SECONDS = 2.0, 0.1


class GuardedHttp(HttpToolsProtocol):
    """Hold each head until it is complete, and reject one that is too long, too slow, or unclear."""

    def __init__(self, transport: Transport, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._shared, self._settings = transport, transport.settings
        self._head = b""
        # Whether no message has begun, or the last one is complete.
        self._is_between = True
        self._is_rejected = False
        self._framing = 0
        self._cycles: list[Any] = []
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if self.client is not None and self.client[0].startswith(_MAPPED):
            # A server that listens on `::` sees IPv4 addresses in this form.
            self.client = (self.client[0].removeprefix(_MAPPED), self.client[1])
        if len(self.connections) > self._shared.max_connections:
            self._shared.rejected.inc()
            self._reject(503, "The server has reached its connection limit", _SHORT_LINGER_SECONDS)
            return
        self._watch("silent", self._settings.keep_alive_timeout)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        # uvicorn does this only for the newest request. Earlier ones would write to a closed connection.
        self._disconnect()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        while data and not self._is_rejected:
            if not self._is_between:
                self._framing += len(data)
                super().data_received(data)
                # Trailers and extensions of chunks, or the next head in the packet of a body.
                if self._framing > self._settings.max_header_bytes and not self._is_between:
                    self._reject(431, "The body has too many bytes that are no content")
                return
            head, data = self._take_head(data)
            if head:
                super().data_received(head)

    def _take_head(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the next head without its upgrade, empty until it is complete, and the data behind it."""
        # Empty lines before a request mean nothing (RFC 9112, 2.2), and must not look like a head.
        data = self._head + data if self._head else data.lstrip(b"\r\n")
        if not data:
            return b"", b""
        end = data.find(_END) + len(_END)
        is_complete, limit = end >= len(_END), self._settings.max_header_bytes
        if (end if is_complete else len(data)) > limit:
            self._reject(431, f"The request line and the headers have more than {limit} bytes")
            return b"", b""
        if not is_complete:
            if not data[:1].isupper():
                self._reject(400, _TLS_ADVICE if data.startswith(_TLS_HELLO) else "Expected an HTTP method")
                return b"", b""
            if not self._head:
                self._watch("headers", self._settings.header_timeout)
            self._head = data
            return b"", b""
        self._head = b""
        if self._timer is not None:
            self._unwatch()
        head, rest = data[:end], data[end:]
        if b"upgrade" in head.lower():
            head = _CONNECTION.sub(_without_upgrade, _UPGRADE.sub(b"", head))
        return head, rest

    def on_message_begin(self) -> None:
        self._is_between = False
        self._framing = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        # An exception makes the parser reject the request.
        parser: Any = self.parser
        if parser.should_upgrade():
            raise ValueError("CONNECT, or a head with Upgrade in the packet of a body")
        if parser.get_http_version() not in ("1.0", "1.1"):
            raise ValueError("Expected HTTP/1.0 or HTTP/1.1")
        if not self.url.startswith(b"/"):
            self._take_authority()
        super().on_headers_complete()
        self._cycles = [cycle for cycle in self._cycles if not cycle.response_complete]
        self._cycles.append(self.cycle)
        # Trailers of chunks must not become headers.
        self.headers = cast("Any", deque(maxlen=0))

    def on_body(self, body: bytes) -> None:
        self._framing -= _MAX_FRAMING * len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_between = True
        self.scope.setdefault("state", {})[BODY_ARRIVED] = True
        super().on_message_complete()
        if self.cycle.response_complete:
            self._watch("silent", self._settings.keep_alive_timeout)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if not self._is_between:
            self._watch("body", self._settings.body_timeout)

    def shutdown(self) -> None:
        # A request that has already reached the kernel is still answered.
        self.loop.call_later(_ARRIVAL_SECONDS, self._shut_down)

    def timeout_keep_alive_handler(self) -> None:
        self._close_idle()

    def send_400_response(self, msg: str) -> None:
        self._reject(400, msg)

    def _take_authority(self) -> None:
        """Replace Host by the authority of an absolute target (RFC 9112, 3.2.2).

        Raise ValueError for another target.
        """
        scheme, _, rest = self.url.partition(b"://")
        authority, _, path = rest.partition(b"/")
        httptools.parse_url(self.url)
        if scheme.lower() not in (b"http", b"https") or not _AUTHORITY.fullmatch(authority):
            raise ValueError("Expected a path, or the URL of this server")
        self.url = b"/" + path
        self.headers[:] = [field for field in self.headers if field[0] != b"host"] + [(b"host", authority)]

    def _shut_down(self) -> None:
        cycle: Any = self.cycle
        if cycle is None or cycle.response_complete:
            self._close_idle()
        else:
            super().shutdown()

    def _close_idle(self) -> None:
        is_flushed = not self.transport.get_write_buffer_size()
        self.transport.close()
        if is_flushed and self.scheme == "https":
            # A client that does not close its side of TLS too would delay the end.
            self.loop.call_later(_CLOSE_SECONDS, self.transport.abort)

    def _disconnect(self) -> None:
        """Let the applications of all open requests know that no response of theirs can be sent."""
        for cycle in self._cycles:
            if not cycle.response_complete:
                cycle.disconnected = True
                # Nothing may be written after the last response.
                cycle.waiting_for_100_continue = False
                cycle.message_event.set()

    def _watch(self, reason: str, seconds: float) -> None:
        self._unwatch()
        if not self.transport.is_closing():
            self._timer = self.loop.call_later(seconds, self._expire, reason)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self, reason: str) -> None:
        self._timer = None
        self._shared.ended.labels(reason).inc()
        if reason == "headers":
            self._reject(408, "The headers of the request took too long to arrive")
        else:
            self._close_idle()

    def _reject(self, status: int, message: str, linger: float = _LINGER_SECONDS) -> None:
        """Read no more, answer with an error if no other response is due, and close the connection."""
        self._is_rejected = True
        self._unwatch()
        cycle: Any = self.cycle
        if cycle is not None and not cycle.response_complete:
            if not cycle.more_body:
                # The connection closes after the response to the complete request.
                cycle.keep_alive = False
                return
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
            self._disconnect()
        self.transport.write(raw_response(status, message))
        if self.transport.can_write_eof():
            self.transport.write_eof()
        # Closing while the client still sends would destroy the response on its way.
        self.loop.call_later(linger, self.transport.close)


def raw_response(status: int, message: str) -> bytes:
    """Return a complete response with ``{"error": message}``, after which the connection closes."""
    body = msgspec.json.encode({"error": message})
    retry = "retry-after: 1\r\n" if status == http.HTTPStatus.SERVICE_UNAVAILABLE else ""
    phrase = http.HTTPStatus(status).phrase
    return (
        f"HTTP/1.1 {status} {phrase}\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"{retry}connection: close\r\n\r\n"
    ).encode("ascii") + body


def _without_upgrade(match: re.Match[bytes]) -> bytes:
    """Return the header Connection without the options of an upgrade; nothing if it has no others."""
    options = [option for option in match[2].split(b",") if option.strip().lower() not in _UPGRADE_OPTIONS]
    return match[1] + b",".join(options) if options else b""
