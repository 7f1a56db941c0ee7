"""Sending requests to a server, over connections that are kept as long as it keeps them."""

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import grpc
import msgspec

from tests.fuzz.answers import Answer, BadAnswerError, Connection, HungUpError
from tests.fuzz.requests import Bytes, Call, Http, Port, Request, as_wire
from tests.fuzz.verdict import judged_answer, judged_bytes, judged_call

__all__ = ("Outcome", "Sender")

_PATIENCE = 60.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a request.

    Attributes:
        status: HTTP's number, gRPC's name, or what the server did instead of answering.
        seconds: from the first byte sent to the last one read.
        finding: what is wrong with that; None when nothing is.
        answer: what came back, as far as anything did.
    """

    status: str
    seconds: float
    finding: str | None
    answer: bytes


class Sender:
    """Sends one request after the other.

    Args:
        addresses: host and port of each of the server's ports.
    """

    def __init__(self, addresses: Mapping[Port, tuple[str, int]]) -> None:
        self._addresses = addresses
        self._connections: dict[Port, Connection] = {}
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._channel: Any = grpc.insecure_channel("{}:{}".format(*addresses["grpc"]), options=options)

    def close(self) -> None:
        """End every connection."""
        for connection in self._connections.values():
            connection.close()
        self._channel.close()

    def send(self, request: Request) -> Outcome:
        """Send a request, wait for what comes back, and judge it."""
        start = time.perf_counter()
        try:
            if isinstance(request, Call):
                status, finding, answer = self._called(request)
            elif isinstance(request, Http):
                status, finding, answer = self._asked(request)
            else:
                status, finding, answer = self._thrown(request)
        except (BadAnswerError, HungUpError, OSError, ValueError) as error:
            self._drop(request)
            status, finding, answer = type(error).__name__, f"{type(error).__name__}: {error}", b""
        return Outcome(status=status, seconds=time.perf_counter() - start, finding=finding, answer=answer)

    def answered(self, request: Http | Call) -> bytes:
        """The status and the body of the answer to a request that is right."""
        if isinstance(request, Call):
            code, details, answers = self._call(request)
            return b"\n".join((code.encode(), details.encode(), *answers))
        answer = self._ask(request)
        return b"%d %s\n" % (answer.status, answer.media_type.encode()) + answer.body

    def _asked(self, request: Http) -> tuple[str, str | None, bytes]:
        answer = self._ask(request)
        return str(answer.status), judged_answer(request, answer), _shown(answer)

    def _ask(self, request: Http) -> Answer:
        data, head_only = as_wire(request), request.method == b"HEAD"
        kept = self._connections.pop(request.port, None)
        if kept is not None:
            try:
                return self._kept(request.port, kept, kept.ask(data, head_only=head_only))
            except HungUpError as error:
                kept.close()
                # A server can close an idle connection at any time; then send again on a new connection.
                if "amid" in str(error):
                    raise
        fresh = Connection(self._addresses[request.port], _PATIENCE)
        return self._kept(request.port, fresh, fresh.ask(data, head_only=head_only))

    def _kept(self, port: Port, connection: Connection, answer: Answer) -> Answer:
        if answer.headers.get("connection") == "close":
            connection.close()
        else:
            self._connections[port] = connection
        return answer

    def _thrown(self, request: Bytes) -> tuple[str, str | None, bytes]:
        connection = Connection(self._addresses[request.port], _PATIENCE)
        with contextlib.closing(connection):
            if request.port == "grpc":
                connection.throw_away(request.data)
                return "hung up", None, b""
            answers = connection.throw(request.data, half_close=request.half_close)
        status = " ".join(str(answer.status) for answer in answers[:2]) or "hung up"
        return status, judged_bytes(request, answers), b"\n".join(map(_shown, answers))

    def _called(self, call: Call) -> tuple[str, str | None, bytes]:
        code, details, answers = self._call(call)
        return code, judged_call(call, code, details, answers), b"\n".join((details.encode(), *answers))

    def _call(self, call: Call) -> tuple[str, str, list[bytes]]:
        asks = {
            (False, False): self._channel.unary_unary,
            (False, True): self._channel.unary_stream,
            (True, True): self._channel.stream_stream,
        }[call.streams](call.method)
        sent = iter(call.messages) if call.streams[0] else call.messages[0]
        options: dict[str, Any] = {"timeout": call.timeout, "metadata": call.metadata}
        if call.compressed:
            options["compression"] = grpc.Compression.Gzip
        answers: list[bytes] = []
        try:
            answered = asks(sent, **options)
            answers.extend(answered if call.streams[1] else [answered])
        except grpc.RpcError as error:
            failure: Any = error
            return failure.code().name, failure.details() or "", answers
        return "OK", "", answers

    def _drop(self, request: Request) -> None:
        if not isinstance(request, Call) and (connection := self._connections.pop(request.port, None)):
            connection.close()


def _shown(answer: Answer) -> bytes:
    headers = "".join(f"{name}: {value}\n" for name, value in answer.headers.items())
    return f"{answer.status}\n{headers}\n".encode() + answer.body
