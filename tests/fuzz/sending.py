"""Send requests to a server over persistent connections."""

import contextlib
import time
from collections.abc import Mapping
from typing import Any

import grpc
import msgspec

from tests.fuzz.answers import Answer, BadAnswerError, Connection, DisconnectedError
from tests.fuzz.requests import Bytes, Call, Http, Port, Request, encode_request
from tests.fuzz.verdict import answer_fault, bytes_fault, call_fault

_TIMEOUT_SECONDS = 60.0


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request.

    Attributes:
        status: HTTP status, gRPC status name, or a description of a missing response.
        seconds: from the first byte sent to the last byte read.
        finding: description of an error; None if there is none.
        answer: the response, as far as it was received.
    """

    status: str
    seconds: float
    finding: str | None
    answer: bytes


class Sender:
    """Sends requests in sequence.

    Args:
        addresses: host and port of each of the server's ports.
    """

    def __init__(self, addresses: Mapping[Port, tuple[str, int]]) -> None:
        self._addresses = addresses
        self._connections: dict[Port, Connection] = {}
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self._channel: Any = grpc.insecure_channel("{}:{}".format(*addresses["grpc"]), options=options)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._channel.close()

    def send(self, request: Request) -> Outcome:
        """Send a request, read the response, and check it."""
        start = time.perf_counter()
        try:
            if isinstance(request, Call):
                status, finding, answer = self._send_call(request)
            elif isinstance(request, Http):
                status, finding, answer = self._send_http(request)
            else:
                status, finding, answer = self._send_bytes(request)
        except (BadAnswerError, DisconnectedError, OSError, ValueError) as error:
            self._close_connection(request)
            status, finding, answer = type(error).__name__, f"{type(error).__name__}: {error}", b""
        return Outcome(status=status, seconds=time.perf_counter() - start, finding=finding, answer=answer)

    def reference_answer(self, request: Http | Call) -> bytes:
        """Send a valid request, and return status and body of the response."""
        if isinstance(request, Call):
            code, details, answers = self._call(request)
            return b"\n".join((code.encode(), details.encode(), *answers))
        answer = self._request(request)
        return b"%d %s\n" % (answer.status, answer.media_type.encode()) + answer.body

    def _send_http(self, request: Http) -> tuple[str, str | None, bytes]:
        answer = self._request(request)
        return str(answer.status), answer_fault(request, answer), _answer_bytes(answer)

    def _request(self, request: Http) -> Answer:
        data, head_only = encode_request(request), request.method == b"HEAD"
        connection = self._connections.pop(request.port, None)
        if connection is not None:
            try:
                return self._keep_or_close(request.port, connection, connection.request(data, head_only=head_only))
            except DisconnectedError as error:
                connection.close()
                # A server can close an idle connection at any time; then send again on a new connection.
                if "amid" in str(error):
                    raise
        connection = Connection(self._addresses[request.port], _TIMEOUT_SECONDS)
        return self._keep_or_close(request.port, connection, connection.request(data, head_only=head_only))

    def _keep_or_close(self, port: Port, connection: Connection, answer: Answer) -> Answer:
        if answer.headers.get("connection") == "close":
            connection.close()
        else:
            self._connections[port] = connection
        return answer

    def _send_bytes(self, request: Bytes) -> tuple[str, str | None, bytes]:
        connection = Connection(self._addresses[request.port], _TIMEOUT_SECONDS)
        with contextlib.closing(connection):
            if request.port == "grpc":
                connection.send_and_discard(request.data)
                return "hung up", None, b""
            answers = connection.send_raw(request.data, half_close=request.half_close)
        status = " ".join(str(answer.status) for answer in answers[:2]) or "hung up"
        return status, bytes_fault(request, answers), b"\n".join(map(_answer_bytes, answers))

    def _send_call(self, call: Call) -> tuple[str, str | None, bytes]:
        code, details, answers = self._call(call)
        return code, call_fault(call, code, details, answers), b"\n".join((details.encode(), *answers))

    def _call(self, call: Call) -> tuple[str, str, list[bytes]]:
        method = {
            (False, False): self._channel.unary_unary,
            (False, True): self._channel.unary_stream,
            (True, True): self._channel.stream_stream,
        }[call.streams](call.method)
        messages = iter(call.messages) if call.streams[0] else call.messages[0]
        options: dict[str, Any] = {"timeout": call.timeout, "metadata": call.metadata}
        if call.compressed:
            options["compression"] = grpc.Compression.Gzip
        answers: list[bytes] = []
        try:
            response = method(messages, **options)
            answers.extend(response if call.streams[1] else [response])
        except grpc.RpcError as error:
            failure: Any = error
            return failure.code().name, failure.details() or "", answers
        return "OK", "", answers

    def _close_connection(self, request: Request) -> None:
        if not isinstance(request, Call) and (connection := self._connections.pop(request.port, None)):
            connection.close()


def _answer_bytes(answer: Answer) -> bytes:
    headers = "".join(f"{name}: {value}\n" for name, value in answer.headers.items())
    return f"{answer.status}\n{headers}\n".encode() + answer.body
