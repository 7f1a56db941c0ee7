"""What a connection knows of its requests, and checks of their heads beyond those of the parser (RFC 9112)."""

from collections.abc import Sequence

import httptools

__all__ = ("ConnectionRequest", "RefusedError", "RequestHead", "split_absolute_target")

_HEADER_OVERHEAD_BYTES = 4
"""A colon, a space and the end of the line."""

_VERSIONS = ("1.0", "1.1")


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

    __slots__ = (
        "body",
        "disconnected",
        "http_version",
        "keep_alive",
        "more_body",
        "response_complete",
        "response_started",
        "waiting_for_100_continue",
    )

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
        status: HTTP status.
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


class RequestHead:
    """Count and check the request line and the headers of each request of a connection.

    Args:
        max_bytes: limit for both together, and for the trailers of a chunked body.
        max_fields: limit for the number of headers.

    Attributes:
        body_length: bytes of the body; None before `check`, and for a chunked body.
    """

    def __init__(self, max_bytes: int, max_fields: int) -> None:
        self._max_bytes = max_bytes
        self._max_fields = max_fields
        self.reset()

    def reset(self) -> None:
        """Start a new request."""
        self._parsed_bytes = 0
        self._received_bytes = 0
        self._header_count = 0
        self._host_count = 0
        self._content_length = b"0"
        self._transfer_encoding: bytes | None = None
        self.body_length: int | None = None

    def count_parsed(self, size: int) -> None:
        """Count `size` parsed bytes of the request line or the headers.

        Raises:
            RefusedError: if the limit is exceeded.
        """
        self._parsed_bytes += size
        if self._parsed_bytes > self._max_bytes:
            raise self._too_large_error()

    def count_received(self, size: int) -> None:
        """Count `size` received bytes that are not parsed completely.

        Raises:
            RefusedError: if the limit is exceeded.
        """
        self._received_bytes += size
        if self._received_bytes > self._max_bytes:
            raise self._too_large_error()

    def _too_large_error(self) -> RefusedError:
        message = f"The request line and the headers have more than {self._max_bytes} bytes"
        return RefusedError(431, message, "headers_large")

    def add_trailer(self, name: bytes, value: bytes) -> None:
        """Count a trailer of a chunked body.

        Raises:
            RefusedError: if a limit is exceeded.
        """
        self._header_count += 1
        if self._header_count > self._max_fields:
            raise self._too_many_error()
        self.count_parsed(len(name) + len(value) + _HEADER_OVERHEAD_BYTES)

    def _too_many_error(self) -> RefusedError:
        return RefusedError(431, f"The request has more than {self._max_fields} headers", "headers_large")

    def check(self, method: bytes, version: str, url: bytes, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Reject a head that is too large, or that two servers in a row could interpret differently.

        Args:
            method: the method.
            version: the version of HTTP.
            url: the path and the query.
            headers: names in lower case.

        Raises:
            RefusedError: if the head is too large, ambiguous or not supported.
        """
        self._header_count = len(headers)
        if self._header_count > self._max_fields:
            raise self._too_many_error()
        size = len(url)
        for name, value in headers:
            size += len(name) + len(value) + _HEADER_OVERHEAD_BYTES
            if name == b"host":
                self._host_count += 1
            elif name == b"content-length":
                self._content_length = value
            elif name == b"transfer-encoding":
                self._transfer_encoding = (
                    value if self._transfer_encoding is None else self._transfer_encoding + b"," + value
                )
        self._parsed_bytes += size
        if self._parsed_bytes > self._max_bytes:
            raise self._too_large_error()
        if self._transfer_encoding is None:
            self.body_length = int(self._content_length)
        if version not in _VERSIONS:
            raise RefusedError(505, "Expected HTTP/1.1 or HTTP/1.0", "malformed")
        if self._host_count != 1 and (self._host_count or version == "1.1"):
            raise RefusedError(400, f"Expected one Host header, got {self._host_count or 'none'}", "malformed")
        if self._transfer_encoding is not None:
            if version == "1.0":
                raise RefusedError(400, "HTTP/1.0 knows no Transfer-Encoding", "malformed")
            if self._transfer_encoding.strip().lower() != b"chunked":
                raise RefusedError(501, "Expected chunked as the only Transfer-Encoding", "malformed")
        if method == b"CONNECT":
            raise RefusedError(405, "CONNECT is not served: this is no proxy", "malformed")

    def framing_header(self) -> bytes:
        """Return the header that defines the end of the body."""
        if self._transfer_encoding is not None:
            return b"Transfer-Encoding: chunked"
        return b"Content-Length: " + self._content_length


def split_absolute_target(target: bytes) -> tuple[bytes, bytes]:
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
