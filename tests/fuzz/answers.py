"""Read HTTP/1.1 responses strictly: a response that a strict client cannot read is a finding."""

import contextlib
import re
import socket
import time
from collections.abc import Mapping

import msgspec

_STATUS = re.compile(rb"HTTP/1\.1 ([1-5]\d\d) [\t -~]*")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_MAX_BYTES = 64 * 1024 * 1024


class DisconnectedError(Exception):
    """The server closed the connection, before or within a response."""


class BadAnswerError(Exception):
    """A response is not valid HTTP, or timed out."""


class Answer(msgspec.Struct, frozen=True):
    """An HTTP response.

    Attributes:
        status: the HTTP status.
        headers: by lower-case name; the last one of duplicates.
        body: without its framing.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        """Return the Content-Type without parameters."""
        return self.headers.get("content-type", "").split(";")[0].strip().lower()


class Connection:
    """A persistent connection.

    Args:
        address: host and port.
        timeout: maximum seconds for a complete response.
    """

    def __init__(self, address: tuple[str, int], timeout: float) -> None:
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        self._socket = socket.create_connection(address, timeout=timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = b""

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def request(self, data: bytes, *, head_only: bool = False) -> Answer:
        """Send a request and read its answer.

        Args:
            data: the request.
            head_only: whether the response has no body, as for HEAD.

        Raises:
            DisconnectedError: when the response is incomplete.
            BadAnswerError: when the response is invalid.
        """
        self._deadline = time.monotonic() + self._timeout
        # The server may reject a request and close before all of it is sent; the response is readable.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._send(data)
        while (answer := self.answer(head_only=head_only)).status < 200:
            if answer.status == 101:
                raise BadAnswerError("the protocol was switched")
        return answer

    def send_raw(self, data: bytes, *, half_close: bool) -> list[Answer]:
        """Send arbitrary bytes, and read responses until the server closes the connection.

        Raises:
            BadAnswerError: when a response is invalid, or the server does not close.
        """
        self._deadline = time.monotonic() + self._timeout
        answers: list[Answer] = []
        head_only = data[:5].upper() == b"HEAD "
        with contextlib.suppress(OSError):
            self._send(data)
            if half_close:
                self._socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(DisconnectedError):
            while True:
                answers.append(self.answer(head_only=head_only))
                # A response to an unread request may have a body that ends with the connection.
                if head_only and answers[-1].headers.get("connection") == "close":
                    break
        return answers

    def send_and_discard(self, data: bytes) -> None:
        """Send bytes, and discard everything until the server closes the connection.

        Raises:
            BadAnswerError: when it does not.
        """
        self._deadline = time.monotonic() + self._timeout
        with contextlib.suppress(OSError):
            self._send(data)
            self._socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(DisconnectedError):
            while True:
                self._receive()

    def answer(self, *, head_only: bool = False) -> Answer:
        """Read one answer."""
        while b"\r\n\r\n" not in self._read:
            if len(self._read) > 1_000_000 or not b"HTTP/".startswith(self._read[:5]):
                raise BadAnswerError(f"no HTTP: {self._read[:80]!r}")
            self._receive()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        line, *lines = head.split(b"\r\n")
        status_line = _STATUS.fullmatch(line)
        if status_line is None:
            raise BadAnswerError(f"no status line: {line[:80]!r}")
        headers: dict[str, str] = {}
        for text in lines:
            if (pair := _HEADER.fullmatch(text)) is None:
                raise BadAnswerError(f"no header: {text[:80]!r}")
            headers[pair[1].decode("latin-1").lower()] = pair[2].decode("latin-1").strip()
        status = int(status_line[1])
        body = b"" if head_only or status < 200 or status in (204, 304) else self._read_body(headers)
        return Answer(status, headers, body)

    def _read_body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            return self._read_chunks()
        if "content-length" in headers:
            return self._read_exactly(int(headers["content-length"]))
        if headers.get("connection") != "close":
            raise BadAnswerError("an answer without a length or an end")
        with contextlib.suppress(DisconnectedError):
            while True:
                self._receive()
        body, self._read = self._read, b""
        return body

    def _read_chunks(self) -> bytes:
        parts: list[bytes] = []
        while True:
            while b"\r\n" not in self._read:
                self._receive()
            line, _, self._read = self._read.partition(b"\r\n")
            size = int(line, 16)
            parts.append(self._read_exactly(size))
            if self._read_exactly(2) != b"\r\n":
                raise BadAnswerError("a chunk of another size than it says")
            if not size:
                return b"".join(parts)

    def _read_exactly(self, size: int) -> bytes:
        while len(self._read) < size:
            self._receive()
        data, self._read = self._read[:size], self._read[size:]
        return data

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(self._timeout)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise BadAnswerError(f"took no more of a request for {self._timeout:g} s") from None

    def _receive(self) -> None:
        self._socket.settimeout(max(self._deadline - time.monotonic(), 0.001))
        try:
            data = self._socket.recv(1 << 18)
        except TimeoutError:
            raise BadAnswerError(f"neither answered nor hung up for {self._timeout:g} s") from None
        except ConnectionResetError:
            raise DisconnectedError("reset") from None
        if not data:
            raise DisconnectedError("closed" + (" amid an answer" if self._read else ""))
        self._read += data
        if len(self._read) > _MAX_BYTES:
            raise BadAnswerError("an answer without an end")
