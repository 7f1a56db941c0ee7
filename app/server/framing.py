"""What the head of a request may be, beyond what the parser looks at (RFC 9112)."""

import httptools

__all__ = ("Head", "RefusedError", "origin_form")

_FIELD_BYTES = 4
"""A colon, a space and the end of the line."""

_VERSIONS = ("1.0", "1.1")


class RefusedError(Exception):
    """What is not taken, with the answer to it.

    Attributes:
        status: of HTTP.
        message: for its sender.
        reason: what it is counted as; empty for what is counted already.
        retry_after: seconds after which to try again, if that helps.
    """

    def __init__(self, status: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.retry_after = 1 if status in (429, 503) else None


class Head:
    """The request line and the headers of one request after the other, counted as they come.

    Args:
        most_bytes: of both together, and of what comes behind a chunked body.
        most_fields: headers.
    """

    def __init__(self, most_bytes: int, most_fields: int) -> None:
        self._most_bytes = most_bytes
        self._most_fields = most_fields
        self.begin()

    def begin(self) -> None:
        """Another request."""
        self._bytes = 0
        self._raw = 0
        self._fields = 0
        self._hosts = 0
        self._length = b"0"
        self._encoding: bytes | None = None

    def came(self, size: int) -> None:
        """So many bytes more of the line and the headers, as the parser has told them apart.

        Raises:
            RefusedError: for more than there may be.
        """
        self._bytes += size
        if self._bytes > self._most_bytes:
            raise self._large()

    def unread(self, size: int) -> None:
        """So many bytes more that are not all told apart yet.

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
        """A header, its name in lower case.

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
        """Hold the whole head against what two servers in a row could understand differently.

        Raises:
            RefusedError: for what is not served, or not clear.
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

    def framing(self) -> bytes:
        """The header that says where the body ends."""
        if self._encoding is not None:
            return b"Transfer-Encoding: chunked"
        return b"Content-Length: " + self._length


def origin_form(target: bytes) -> tuple[bytes, bytes]:
    """The path and query of a target in absolute form, and the host, which counts instead of that of the header.

    Raises:
        RefusedError: for any other form.
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
