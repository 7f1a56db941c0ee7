"""Call an engine over gRPC."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast
from urllib.parse import urlsplit

import grpc
from google.protobuf.descriptor import ServiceDescriptor
from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError

from app.conformance.clause import FaultError
from app.conformance.messages import answer_class, is_streamed
from app.conformance.probe import Exchange, LateError, Probe
from app.conformance.quoting import brief
from app.conformance.trust import Trust

__all__ = ("SCHEMES", "Call", "Channel", "call", "connected", "only_answer", "refusal")

SCHEMES = ("grpc://", "grpcs://")
"""URL schemes of engines: plain text and TLS."""

_MAX_MESSAGE_BYTES = 8_000_000
_MAX_CONNECT_S = 10
_BARRED = ("UNAUTHENTICATED", "PERMISSION_DENIED")


@dataclass(frozen=True, slots=True)
class Call(Exchange):
    """An exchange over gRPC, with its response messages; a refused call has none."""

    answers: Sequence[Any]
    unreadable: str
    """Why the response could not be decoded; empty if it could."""

    @property
    def ok(self) -> bool:
        """Return whether the status is OK."""
        return self.status == 0

    @property
    def barred(self) -> bool:
        """Return whether the engine refused the credentials."""
        return self.code in _BARRED

    @property
    def code(self) -> str:
        """Return the name of the status."""
        return self.headers["grpc-status"]


@dataclass(frozen=True, slots=True)
class Channel:
    """A channel to an engine.

    Args:
        channel: the grpc channel.
        metadata: sent with every call.
        timeout: seconds to wait for a response.
    """

    channel: Any
    metadata: Sequence[tuple[str, str]]
    timeout: float

    def reach(self) -> None:
        seconds = min(self.timeout, _MAX_CONNECT_S)
        try:
            grpc.channel_ready_future(self.channel).result(timeout=seconds)
        except grpc.FutureTimeoutError:
            raise LateError(f"Nothing speaks gRPC there within {seconds:g} seconds") from None

    def call(self, path: str, message: bytes, *, streamed: bool) -> tuple[int, str, Sequence[bytes]]:
        kind = self.channel.unary_stream if streamed else self.channel.unary_unary
        answers: list[bytes] = []
        try:
            answer = kind(path)(message, metadata=self.metadata, timeout=self.timeout)
            answers.extend(answer if streamed else [answer])
        except grpc.RpcError as error:
            status: Any = error
            if status.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise LateError(f"{path} had no answer within {self.timeout:g} seconds") from None
            return status.code().value[0], str(status.details() or ""), answers
        return 0, "", answers


@contextmanager
def connected(
    url: str,
    headers: Mapping[str, str],
    timeout: float,
    trust: Trust = Trust(),  # noqa: B008  frozen
) -> Generator[Channel]:
    """Open a channel to the engine at `url`, which starts with one of `SCHEMES`; it connects on first use."""
    parts = urlsplit(url)
    options = [("grpc.max_receive_message_length", _MAX_MESSAGE_BYTES), ("grpc.enable_http_proxy", 0)]
    if parts.scheme == "grpcs":
        channel = grpc.secure_channel(parts.netloc, trust.credentials(), options)
    else:
        channel = grpc.insecure_channel(parts.netloc, options)
    try:
        yield Channel(channel, [(name.lower(), value) for name, value in headers.items()], timeout)
    finally:
        channel.close()


def call(probe: Probe, service: ServiceDescriptor, method: str, request: Any, *, fresh: bool = False) -> Call:
    """Call `method` of `service`. Reuse the response to an equal earlier call, unless `fresh`.

    Raises:
        BudgetSpentError: the request limit is reached.
        LateError: there is no response in time.
    """
    path = f"/{service.full_name}/{method}"
    sent = request.SerializeToString(deterministic=True)
    streamed = is_streamed(service, method)
    if probe.caller is None:
        raise TypeError("a probe without a channel was asked to call")
    caller = probe.caller

    def ask() -> Call:
        status, text, answers = caller.call(path, sent, streamed=streamed)
        read, unreadable = _read(answer_class(service, method), answers)
        body = "\n".join(map(_as_json, read)) if status == 0 and not unreadable else text or unreadable
        headers = {"grpc-status": _name(status), **({"grpc-message": text} if text else {})}
        return Call("gRPC", path, {}, _as_json(request).encode(), status, headers, body.encode(), read, unreadable)

    return cast("Call", probe.asked(("gRPC", path, sent), ask, fresh=fresh))


def only_answer(made: Call) -> Any:
    """Return the first response message of a call.

    Raises:
        FaultError: the call failed, or the response could not be decoded.
    """
    if not made.ok:
        raise FaultError(f"{made.path}: Expected OK, got {made.code} {brief(made.body)}")
    if made.unreadable:
        raise FaultError(f"{made.path}: {made.unreadable}")
    return made.answers[0]


def refusal(made: Call, *codes: str) -> None:
    """Raise a `FaultError` unless the call was refused, with one of `codes` if given."""
    if made.ok or (codes and made.code not in codes):
        expected = " or ".join(codes) or "a status other than OK"
        raise FaultError(f"{made.path}: Expected {expected}, got {made.code} {brief(made.body)}")


def _read(kind: Any, answers: Sequence[bytes]) -> tuple[Sequence[Any], str]:
    try:
        return [kind.FromString(answer) for answer in answers], ""
    except DecodeError as error:
        return [], f"The answer is not a {kind.DESCRIPTOR.name}: {error}"


def _as_json(message: Any) -> str:
    try:
        return MessageToJson(message, preserving_proto_field_name=True, indent=None)
    except (ValueError, UnicodeError) as error:
        return f"{message.DESCRIPTOR.name}, which cannot be shown: {error}"


def _name(status: int) -> str:
    return next((code.name for code in grpc.StatusCode if cast("Any", code.value)[0] == status), str(status))
