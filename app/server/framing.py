"""Check the request line and headers beyond what the parser checks (RFC 9112)."""

import httptools

__all__ = ("Head", "RefusedError", "origin_form")

_FIELD_BYTES = 4
"""A colon, a space and the end of the line."""

_VERSIONS = ("1.0", "1.1")


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


class Head:
    """Count and check the request line and the headers of each request of a connection.

    Args:
        most_bytes: limit for both together, and for the trailers of a chunked body.
        most_fields: limit for the number of headers.
    """

    def __init__(self, most_bytes: int, most_fields: int) -> None:
        self._most_bytes = most_bytes
        self._most_fields = most_fields
        self.begin()

    def begin(self) -> None:
        """Start a new request."""
        self._bytes = 0
        self._raw = 0
        self._fields = 0
        self._hosts = 0
        self._length = b"0"
        self._encoding: bytes | None = None

    def came(self, size: int) -> None:
        """Count `size` parsed bytes of the request line or the headers.

        Raises:
            RefusedError: for more than there may be.
        """
        self._bytes += size
        if self._bytes > self._most_bytes:
            raise self._large()

    def unread(self, size: int) -> None:
        """Count `size` received bytes that are not parsed completely.

        Raises:
            RefusedError: for more than there may be.
        """
        self._raw += size
        if self._raw > self._most_bytes:
            raise self._large()

    def _large(self) -> RefusedError:
        message = f"The request line and the headers have more than {self._most_bytes} bytes"
        return RefusedError(431, message, "headers_large")

    def field(self, name: bytes, value: bytes) -> None:
        """Count a header and record those that define the framing; `name` is in lower case.

        Raises:
            RefusedError: for more than there may be.
        """
        self._fields += 1
        if self._fields > self._most_fields:
            raise RefusedError(431, f"The request has more than {self._most_fields} headers", "headers_large")
        self.came(len(name) + len(value) + _FIELD_BYTES)
        if name == b"host":
            self._hosts += 1
        elif name == b"content-length":
            self._length = value
        elif name == b"transfer-encoding":
            self._encoding = value if self._encoding is None else self._encoding + b"," + value

    def check(self, method: bytes, version: str) -> None:
        """Reject a head that two servers in a row could interpret differently.

        Raises:
            RefusedError: if the head is ambiguous or not supported.
        """
        if version not in _VERSIONS:
            raise RefusedError(505, "Expected HTTP/1.1 or HTTP/1.0", "malformed")
        if self._hosts != 1 and (self._hosts or version == "1.1"):
            raise RefusedError(400, f"Expected one Host header, got {self._hosts or 'none'}", "malformed")
        if self._encoding is not None:
            if version == "1.0":
                raise RefusedError(400, "HTTP/1.0 knows no Transfer-Encoding", "malformed")
            if self._encoding.strip().lower() != b"chunked":
                raise RefusedError(501, "Expected chunked as the only Transfer-Encoding", "malformed")
        if method == b"CONNECT":
            raise RefusedError(405, "CONNECT is not served: this is no proxy", "malformed")

    def body_length(self) -> int | None:
        """Return the length of the body; None for a chunked body."""
        return None if self._encoding is not None else int(self._length)

    def framing(self) -> bytes:
        """Return the header that defines the end of the body."""
        if self._encoding is not None:
            return b"Transfer-Encoding: chunked"
        return b"Content-Length: " + self._length


def origin_form(target: bytes) -> tuple[bytes, bytes]:
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
