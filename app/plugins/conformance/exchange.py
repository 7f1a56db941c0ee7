"""An exchange with an engine over HTTP or gRPC, the expectations of checks, and the errors that they raise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

_CLIENT_ERRORS = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE")
"""gRPC statuses for errors that the client made."""

_SUCCESS = ("200", "OK")
"""The codes of a success over HTTP and gRPC."""
_MAX_QUOTED = 120
_UNAUTHORIZED = ("401", "403", "UNAUTHENTICATED", "PERMISSION_DENIED")


class ViolationError(Exception):
    """Raised by a check: the engine violates the requirement. The message has the expected and the actual value."""


class InconclusiveError(Exception):
    """Raised by a check: the engine's responses neither prove nor disprove the requirement."""


def quote(value: object) -> str:
    """Return a value or a body as one line of at most 120 characters."""
    if isinstance(value, bytes):
        text = value[: 4 * _MAX_QUOTED].decode(errors="replace")
    else:
        try:
            text = msgspec.json.encode(value).decode()
        except (TypeError, ValueError, UnicodeError, RecursionError):
            text = repr(value)
    text = " ".join(text.split())
    return text if len(text) <= _MAX_QUOTED else f"{text[: _MAX_QUOTED - 3]}..."


def decode_object(data: bytes) -> dict[str, Any]:
    """Decode a JSON object, strictly: UTF-8, no NaN. Raise ViolationError if the data is something else."""
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ViolationError(f"The answer is not a JSON object: {error}: {quote(data)}") from None


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its response; header names are in lower case.

    For a gRPC call, `method` is "gRPC", `status` is the status number (0 is OK), and the bodies are the messages in
    protobuf's JSON. `answers` are its response messages: a rejected call has none, nor has one that is not decoded.
    """

    method: str
    path: str
    request_headers: Mapping[str, str]
    request_body: bytes
    status: int
    headers: Mapping[str, str]
    body: bytes
    answers: Sequence[Any] | None = None

    @property
    def ok(self) -> bool:
        return self.code in _SUCCESS

    @property
    def rejected(self) -> bool:
        return 400 <= self.status < 500 or self.code in _CLIENT_ERRORS

    @property
    def unauthorized(self) -> bool:
        """Return whether the engine rejected the credentials."""
        return self.code in _UNAUTHORIZED

    @property
    def code(self) -> str:
        return str(self.status) if self.answers is None else self.headers["grpc-status"]

    def message(self) -> Any:
        """Return the first response message over gRPC.

        Raise ViolationError if the call failed, or the response could not be decoded.
        """
        self.expect_status(_SUCCESS[1])
        if not self.answers:
            raise ViolationError(f"{self.path}: {quote(self.body) or 'Expected a message, got none'}")
        return self.answers[0]

    def object(self) -> dict[str, Any]:
        """Return `decode_object` of the response body; over gRPC, of `message` with the names of the .proto file."""
        if self.answers is not None:
            self.message()
        return decode_object(self.body)

    def expect_object(self) -> dict[str, Any]:
        """Return `object` of a response with the status of a success.

        Raise ViolationError if the status is another one, or the body is not a JSON object.
        """
        self.expect_status(_SUCCESS[self.answers is not None])
        return self.object()

    def expect_accepted(self) -> dict[str, Any]:
        """Return `expect_object` of the response to a request that the engine should accept.

        Raise InconclusiveError if the engine rejected the request, which proves nothing. Raise ViolationError if the
        response is neither a success nor a rejection.
        """
        if self.rejected:
            reason = f"{self.code} {quote(self.body)}"
            raise InconclusiveError(
                f"The engine rejects the request, with {reason}; give a body that it accepts with --request"
            )
        return self.expect_object()

    def expect_status(self, *codes: int | str) -> None:
        """Raise a `ViolationError` unless the status is one of `codes`, which are names over gRPC."""
        expected = [str(code) for code in codes]
        if self.code not in expected:
            raise ViolationError(f"{self.path}: Expected {' or '.join(expected)}, got {self.code} {quote(self.body)}")

    def expect_error(self, max_status: int = 499) -> None:
        """Raise a `ViolationError` if the status is not from 400 to `max_status`."""
        if not 400 <= self.status <= max_status:
            got = f"{self.status} {quote(self.body)}"
            raise ViolationError(f"Expected a status from 400 to {max_status}, got {got}")

    def expect_client_error(self, *also: str) -> None:
        """Raise a `ViolationError` unless the engine blames the client, or the code is one of `also`."""
        if self.answers is not None:
            self.expect_status(*_CLIENT_ERRORS, *also)
        elif self.code not in also:
            self.expect_error()

    def expect_json(self) -> None:
        """Raise a `ViolationError` unless the Content-Type is application/json, in any case, or with a charset."""
        content_type = self.headers.get("content-type", "")
        if content_type.partition(";")[0].strip().lower() != "application/json":
            raise ViolationError(f"Expected application/json, got {quote(content_type)}")
