"""Reading what comes back over HTTP/1.1, strictly: an answer that a strict client could not read is a finding."""

import contextlib
import re
import socket
import time
from collections.abc import Mapping

import msgspec

__all__ = ("Answer", "BadAnswerError", "Connection", "HungUpError")

_STATUS = re.compile(rb"HTTP/1\.1 ([1-5]\d\d) [\t -~]*")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_MOST = 64 * 1024 * 1024


class HungUpError(Exception):
    """The server closed the connection, with or without a part of an answer."""


class BadAnswerError(Exception):
    """What came is no HTTP, or came too late."""


class Answer(msgspec.Struct, frozen=True):
    """An answer over HTTP.

    Attributes:
        status: of HTTP.
        headers: by their names in lower case; the last of those that come twice.
        body: without its framing.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def media_type(self) -> str:
        """Its Content-Type without parameters."""
        return self.headers.get("content-type", "").split(";")[0].strip().lower()


class Connection:
    """One connection, kept alive from request to request as long as the server wants.

    Args:
        address: host and port.
        patience: seconds that an answer may take altogether.
    """

    def __init__(self, address: tuple[str, int], patience: float) -> None:
        self._patience = patience
        self._until = time.monotonic() + patience
        self._socket = socket.create_connection(address, timeout=patience)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = b""

    def close(self) -> None:
        """End it."""
        self._socket.close()

    def ask(self, data: bytes, *, head_only: bool = False) -> Answer:
        """Send a request and read its answer.

        Args:
            data: the request.
            head_only: whether an answer has no body, as one to HEAD has none.

        Raises:
            HungUpError: when no whole answer came.
            BadAnswerError: when what came is none.
        """
        self._until = time.monotonic() + self._patience
        # A request that is refused before it is whole may find the connection closed; the answer is there all the same.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._send(data)
        while (answer := self.answer(head_only=head_only)).status < 200:
            if answer.status == 101:
                raise BadAnswerError("the protocol was switched")
        return answer

    def throw(self, data: bytes, *, half_close: bool) -> list[Answer]:
        """Send bytes that need not be a request, and read answers until the server hangs up.

        Raises:
            BadAnswerError: when what came is none, or the server does not hang up.
        """
        self._until = time.monotonic() + self._patience
        answers: list[Answer] = []
        head_only = data[:5].upper() == b"HEAD "
        with contextlib.suppress(OSError):
            self._send(data)
            if half_close:
                self._socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(HungUpError):
            while True:
                answers.append(self.answer(head_only=head_only))
                # What is refused before it is read may have a body, which the end of the connection ends.
                if head_only and answers[-1].headers.get("connection") == "close":
                    break
        return answers

    def throw_away(self, data: bytes) -> None:
        """Send bytes, and read until the server hangs up.

        Raises:
            BadAnswerError: when it does not.
        """
        self._until = time.monotonic() + self._patience
        with contextlib.suppress(OSError):
            self._send(data)
            self._socket.shutdown(socket.SHUT_WR)
        with contextlib.suppress(HungUpError):
            while True:
                self._more()

    def answer(self, *, head_only: bool = False) -> Answer:
        """Read one answer."""
        while b"\r\n\r\n" not in self._read:
            if len(self._read) > 1_000_000 or not b"HTTP/".startswith(self._read[:5]):
                raise BadAnswerError(f"no HTTP: {self._read[:80]!r}")
            self._more()
        head, _, self._read = self._read.partition(b"\r\n\r\n")
        line, *lines = head.split(b"\r\n")
        found = _STATUS.fullmatch(line)
        if found is None:
            raise BadAnswerError(f"no status line: {line[:80]!r}")
        headers: dict[str, str] = {}
        for text in lines:
            if (pair := _HEADER.fullmatch(text)) is None:
                raise BadAnswerError(f"no header: {text[:80]!r}")
            headers[pair[1].decode("latin-1").lower()] = pair[2].decode("latin-1").strip()
        status = int(found[1])
        body = b"" if head_only or status < 200 or status in (204, 304) else self._body(headers)
        return Answer(status, headers, body)

    def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding") == "chunked":
            return self._chunks()
        if "content-length" in headers:
            return self._exactly(int(headers["content-length"]))
        if headers.get("connection") != "close":
            raise BadAnswerError("an answer without a length or an end")
        with contextlib.suppress(HungUpError):
            while True:
                self._more()
        body, self._read = self._read, b""
        return body

    def _chunks(self) -> bytes:
        parts: list[bytes] = []
        while True:
            while b"\r\n" not in self._read:
                self._more()
            line, _, self._read = self._read.partition(b"\r\n")
            size = int(line, 16)
            parts.append(self._exactly(size))
            if self._exactly(2) != b"\r\n":
                raise BadAnswerError("a chunk of another size than it says")
            if not size:
                return b"".join(parts)

    def _exactly(self, size: int) -> bytes:
        while len(self._read) < size:
            self._more()
        found, self._read = self._read[:size], self._read[size:]
        return found

    def _send(self, data: bytes) -> None:
        self._socket.settimeout(self._patience)
        try:
            self._socket.sendall(data)
        except TimeoutError:
            raise BadAnswerError(f"took no more of a request for {self._patience:g} s") from None

    def _more(self) -> None:
        self._socket.settimeout(max(self._until - time.monotonic(), 0.001))
        try:
            data = self._socket.recv(1 << 18)
        except TimeoutError:
            raise BadAnswerError(f"neither answered nor hung up for {self._patience:g} s") from None
        except ConnectionResetError:
            raise HungUpError("reset") from None
        if not data:
            raise HungUpError("closed" + (" amid an answer" if self._read else ""))
        self._read += data
        if len(self._read) > _MOST:
            raise BadAnswerError("an answer without an end")
