"""Parse the requests of a connection, with limits and checks of their heads beyond those of httptools (RFC 9112)."""

import http
from collections.abc import Callable

import httptools
import msgspec

_HEADER_OVERHEAD_BYTES = 4
"""A colon, a space and the end of the line."""

_OVERHEAD_FACTOR = 8
"""Allowed bytes of chunk framing for each byte of a body: a chunk of one byte has five."""

_VERSIONS = ("1.0", "1.1")

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in http.HTTPStatus}
"""The first line of a response, by status."""

STATUS_LINES[499] = b"HTTP/1.1 499 \r\n"


class ConnectionRequest:
    """A request on a connection, which fills it, and calls `notify` or `complete_body` after each change.

    Args:
        keep_alive: whether the connection stays open after the response.
        http_version: such as 1.1.
        waiting_for_100_continue: whether the client sends its body only after an interim response.

    Attributes:
        body: the received bytes of the body that are not read yet.
        more_body: whether more bytes of the body will arrive.
        disconnected: whether the client has left, or its connection accepts no response.
        response_started: whether bytes of the response are written.
        response_complete: whether all bytes of the response are written.
    """

    def __init__(self, *, keep_alive: bool, http_version: str = "1.1", waiting_for_100_continue: bool = False) -> None:
        self.keep_alive = keep_alive
        self.http_version = http_version
        self.waiting_for_100_continue = waiting_for_100_continue
        self.body = bytearray()
        self.more_body = True
        self.disconnected = False
        self.response_started = False
        self.response_complete = False

    def notify(self) -> None:
        """React to more bytes of the body, or to a client that has disconnected."""
        raise NotImplementedError

    def complete_body(self) -> None:
        """React to the end of the body."""
        raise NotImplementedError


class RefusedError(Exception):
    """A request that is rejected, with its response.

    Attributes:
        message: for the client.
        reason: the metric label; empty if the request is already counted.
        response: the complete response, if it already exists.
        retry_after: seconds to wait before a retry; None if a retry does not help.
    """

    def __init__(self, status: int, message: str, reason: str = "", response: bytes | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.response = response
        self.retry_after = 1 if status in (429, 503) else None


def raw_response(status: int, message: str, retry_after: int | None = None) -> bytes:
    """Return a complete HTTP/1.1 response with ``{"error": message}``, after which the connection is closed."""
    body = msgspec.json.encode({"error": message})
    # At this level only the method CONNECT is rejected, on every path.
    allow = "allow: GET, HEAD, OPTIONS, POST\r\n" if status == http.HTTPStatus.METHOD_NOT_ALLOWED else ""
    retry = "" if retry_after is None else f"retry-after: {retry_after}\r\n"
    head = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{allow}{retry}connection: close\r\n\r\n"
    return STATUS_LINES[status] + head.encode("ascii") + body


class RequestParser:
    """Parse the requests of one connection. Its methods raise `RefusedError` for a request that is rejected.

    Args:
        max_bytes: limit for the request line and the headers together, and for the trailers of a chunked body.
        max_fields: limit for the number of headers.
        on_head: called when the headers are complete.
        on_body: called with each part of a body.
        on_end: called at the end of a request.

    Attributes:
        method: method of the newest request; this and the following are set before `on_head`.
        version: its version of HTTP.
        keep_alive: whether it leaves the connection open.
        is_upgrade: whether it asks for another protocol.
        body_length: bytes of its body; None for a chunked body.
        url: its path and query.
        headers: its headers, names in lower case.
        message_count: number of requests started on the connection.
        in_head: whether its request line and headers are incomplete.
        in_message: whether it is incomplete.
        body_bytes: received bytes of its body, which `on_body` counts.
    """

    def __init__(
        self,
        max_bytes: int,
        max_fields: int,
        on_head: Callable[[], None],
        on_body: Callable[[bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        self._max_bytes, self._max_fields = max_bytes, max_fields
        self._on_head, self.on_body, self._on_end = on_head, on_body, on_end
        self.url, self.headers = b"", list[tuple[bytes, bytes]]()
        self.message_count = self.body_bytes = self._overhead_bytes = self._received_bytes = 0
        self.in_head = self.in_message = self._is_resuming = False
        self.body_length: int | None = None
        self._parser = self._new_parser()

    def _new_parser(self) -> httptools.HttpRequestParser:
        parser = httptools.HttpRequestParser(self)
        # Answer a request even if a client sends more after `Connection: close`.
        parser.set_dangerous_leniencies(lenient_data_after_close=True)
        return parser

    def close(self) -> None:
        """Drop the references to the connection, so that both are freed at once."""
        del self._parser, self._on_head, self.on_body, self._on_end

    def feed(self, data: bytes | memoryview) -> None:
        """Parse received bytes."""
        body_bytes, message_count, was_in_head, was_in_message = (
            self.body_bytes,
            self.message_count,
            self.in_head,
            self.in_message,
        )
        unparsed = data
        try:
            while unparsed:
                try:
                    self._parser.feed_data(unparsed)
                    break
                except httptools.HttpParserUpgrade as upgrade:
                    unparsed = unparsed[upgrade.args[0] :]
                    self._ignore_upgrade()
        except httptools.HttpParserError as error:
            cause = error.__context__
            if isinstance(cause, RefusedError):
                raise cause from None
            raise RefusedError(400, f"Not HTTP: {error}", "malformed") from None
        if not self.in_message:
            return
        # Limit bytes that are in neither a header nor a body yet: an unfinished line, or chunk extensions.
        if self.in_head:
            if self.message_count == message_count + (not was_in_message):
                self._received_bytes += len(data)
                if self._received_bytes > self._max_bytes:
                    raise self._too_large_error()
        elif message_count == self.message_count and not was_in_head:
            self._overhead_bytes += len(data) - (self.body_bytes - body_bytes)
            if self._overhead_bytes > self._max_bytes + _OVERHEAD_FACTOR * self.body_bytes:
                raise RefusedError(400, "The chunks of the body are mostly not the body", "chunks")

    def _ignore_upgrade(self) -> None:
        """Continue with HTTP/1.1 after a request for an upgrade, as RFC 9110, 7.8 allows."""
        self._parser = self._new_parser()
        self.is_upgrade = False
        length = b"Transfer-Encoding: chunked" if self.body_length is None else b"Content-Length: %d" % self.body_length
        self._is_resuming = True
        try:
            self._parser.feed_data(b"POST / HTTP/1.1\r\n" + length + b"\r\n\r\n")
        finally:
            self._is_resuming = False

    # Callbacks of httptools.

    def on_message_begin(self) -> None:
        if self._is_resuming:
            return
        self.url, self.headers = b"", []
        self.message_count += 1
        self.in_head = self.in_message = True
        self.body_bytes = self._overhead_bytes = self._received_bytes = 0

    def on_url(self, url: bytes) -> None:
        if not self._is_resuming:
            self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_resuming:
            return
        if self.in_head:
            self.headers.append((name.lower(), value))
            return
        # No handler uses trailers, and they must not count as headers.
        self._header_count += 1
        self._parsed_bytes += len(name) + len(value) + _HEADER_OVERHEAD_BYTES
        self._check_size()

    def on_headers_complete(self) -> None:
        if self._is_resuming:
            return
        parser = self._parser
        self.method, self.version = parser.get_method(), parser.get_http_version()
        self.keep_alive, self.is_upgrade = parser.should_keep_alive(), parser.should_upgrade()
        # Reject a head that is too large, or that two servers in a row could interpret differently.
        size, hosts, content_length, transfer_encoding = len(self.url), 0, b"0", None
        for name, value in self.headers:
            size += len(name) + len(value) + _HEADER_OVERHEAD_BYTES
            if name == b"host":
                hosts += 1
            elif name == b"content-length":
                content_length = value
            elif name == b"transfer-encoding":
                transfer_encoding = value if transfer_encoding is None else transfer_encoding + b"," + value
        self._header_count, self._parsed_bytes = len(self.headers), size
        self._check_size()
        if self.version not in _VERSIONS:
            raise RefusedError(505, "Expected HTTP/1.1 or HTTP/1.0", "malformed")
        if hosts != 1 and (hosts or self.version == "1.1"):
            raise RefusedError(400, f"Expected one Host header, got {hosts or 'none'}", "malformed")
        self.body_length = int(content_length) if transfer_encoding is None else None
        if transfer_encoding is not None:
            if self.version == "1.0":
                raise RefusedError(400, "HTTP/1.0 knows no Transfer-Encoding", "malformed")
            if transfer_encoding.strip().lower() != b"chunked":
                raise RefusedError(501, "Expected chunked as the only Transfer-Encoding", "malformed")
        if self.method == b"CONNECT":
            raise RefusedError(405, "CONNECT is not served: this is no proxy", "malformed")
        if not self.url.startswith(b"/"):
            self.url, host = _split_absolute_target(self.url)
            self.headers[:] = [(name, host if name == b"host" else value) for name, value in self.headers]
        self._on_head()
        self.in_head = False

    def on_message_complete(self) -> None:
        # The parser skips the body of a request for a protocol upgrade.
        if not self.is_upgrade:
            self.in_message = False
            self._on_end()

    def _check_size(self) -> None:
        if self._header_count > self._max_fields:
            raise RefusedError(431, f"The request has more than {self._max_fields} headers", "headers_large")
        if self._parsed_bytes > self._max_bytes:
            raise self._too_large_error()

    def _too_large_error(self) -> RefusedError:
        message = f"The request line and the headers have more than {self._max_bytes} bytes"
        return RefusedError(431, message, "headers_large")


def _split_absolute_target(target: bytes) -> tuple[bytes, bytes]:
    """Split a target in absolute form into path with query, and host, which overrides the Host header.

    Raises:
        RefusedError: if the target has another form.
    """
    try:
        parsed = httptools.parse_url(target)
    except httptools.HttpParserInvalidURLError:
        raise RefusedError(400, "Expected a path", "malformed") from None
    if parsed.schema not in (b"http", b"https") or not parsed.host or parsed.userinfo:
        raise RefusedError(400, "Expected a path", "malformed")
    path = parsed.path or b"/"
    host = b"[%s]" % parsed.host if b":" in parsed.host else parsed.host
    if parsed.port:
        host = b"%s:%d" % (host, parsed.port)
    return path + (b"?" + parsed.query if parsed.query else b""), host
