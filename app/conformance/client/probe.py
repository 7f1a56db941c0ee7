"""Send a limited number of requests to an engine over HTTP or gRPC, and keep the exchanges."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import grpc
import httpx
import msgspec

from app.conformance.sample_images import SampleImage

_MAX_BODY_BYTES = 8_000_000
"""Longer responses are an error: no valid response to the probe's images is this large."""

_MAX_UNANSWERED = 3
_MAX_RESPONSE_S = 120
"""The time limit of a response if the client has no timeout."""

_MAX_CONNECT_S = 10
_MAX_QUOTED = 120
_UNAUTHORIZED = (401, 403)


class RequestLimitError(Exception):
    """The limit of requests, or of requests without a response, is reached."""


class ViolationError(Exception):
    """Raised by a check: the engine violates the requirement. The message has the expected and the actual value."""


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
    """Decode a JSON object, strictly: UTF-8, no NaN.

    Raises:
        ViolationError: the data is something else.
    """
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ViolationError(f"The answer is not a JSON object: {error}: {quote(data)}") from None


@dataclass(frozen=True)
class GrpcChannel:
    """A channel to an engine over gRPC.

    Args:
        channel: the grpc channel.
        metadata: sent with every call.
        timeout: seconds to wait for a response.
    """

    channel: Any
    metadata: Sequence[tuple[str, str]]
    timeout: float

    def wait_connected(self) -> None:
        """Wait until the channel is connected.

        Raises:
            httpx.TimeoutException: the connection takes too long.
        """
        seconds = min(self.timeout, _MAX_CONNECT_S)
        try:
            grpc.channel_ready_future(self.channel).result(timeout=seconds)
        except grpc.FutureTimeoutError:
            raise httpx.ConnectTimeout(f"Nothing speaks gRPC there within {seconds:g} seconds") from None

    def call(self, path: str, message: bytes, *, streamed: bool) -> tuple[int, str, Sequence[bytes]]:
        """Call a method; return the status number, its text, and the response messages.

        Raises:
            httpx.TimeoutException: there is no response in time.
        """
        stub = self.channel.unary_stream if streamed else self.channel.unary_unary
        answers: list[bytes] = []
        try:
            answer = stub(path)(message, metadata=self.metadata, timeout=self.timeout)
            answers.extend(answer if streamed else [answer])
        except grpc.RpcError as error:
            status: Any = error
            if status.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise httpx.ReadTimeout(f"{path} had no answer within {self.timeout:g} seconds") from None
            return status.code().value[0], str(status.details() or ""), answers
        return 0, "", answers


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request and its response; header names are in lower case.

    For a gRPC call, `method` is "gRPC", `status` is the status number (0 is OK), and the bodies are the messages in
    protobuf's JSON.
    """

    method: str
    path: str
    request_headers: Mapping[str, str]
    request_body: bytes
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Return whether the status is 200."""
        return self.status == 200

    @property
    def refused(self) -> bool:
        """Return whether the status is 4xx."""
        return 400 <= self.status < 500

    @property
    def unauthorized(self) -> bool:
        """Return whether the engine refused the credentials."""
        return self.status in _UNAUTHORIZED

    @property
    def code(self) -> str:
        """Return the status as text."""
        return str(self.status)

    def object(self) -> dict[str, Any]:
        """Return `decode_object` of the response body."""
        return decode_object(self.body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The engine under test.

    Args:
        url: the engine's URL; the paths of the protocol are appended to it.
        model: the name of the model in paths, for protocols that use one.
        task_type: Chariot's task type; detected from responses by default.
        images: given images, sent besides the probe's own.
        request: the body of an inference that the engine can answer, for tensor protocols; generated by default.
        health_path: the path that a platform polls for health; the common paths by default.
    """

    url: str
    model: str | None = None
    task_type: str | None = None
    images: Sequence[SampleImage] = ()
    request: Mapping[str, object] | None = None
    health_path: str | None = None


@dataclass(frozen=True, slots=True)
class ImageFormat:
    """How a protocol sends an image with parameters, and reads the items of a response with status 200.

    `read_items` raises `InconclusiveError` if there are none.
    """

    send: Callable[["Probe", SampleImage, Mapping[str, object]], Exchange]
    read_items: Callable[[Exchange], Sequence[object]]


@dataclass(slots=True)
class Probe:
    """Send requests one at a time. Reuse the response to an equal earlier request, unless `fresh`.

    Args:
        client: with timeout and headers.
        target: the engine under test.
        max_requests: the limit; further requests raise `RequestLimitError`.
        transport: sends gRPC calls; None for HTTP protocols.
    """

    client: httpx.Client
    target: Target
    max_requests: int = 400
    transport: GrpcChannel | None = None
    request_count: int = 0
    timeouts: int = 0
    images: ImageFormat = field(init=False)
    """The format of the protocol's images, which the runner sets if the protocol has items."""
    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    """The exchanges of the current check."""
    _cache: dict[tuple[object, ...], Exchange] = field(default_factory=dict[tuple[object, ...], Exchange])

    @property
    def unauthorized(self) -> bool:
        """Return whether the engine refused the credentials of every request."""
        return bool(self._cache) and all(exchange.unauthorized for exchange in self._cache.values())

    def get(self, path: str, **headers: str) -> Exchange:
        """Send GET to `path`, which is appended to the engine's URL."""
        return self.send("GET", path, headers=headers)

    def post_json(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Exchange:
        """Send POST to `path` with `body` as JSON, in which bytes are base64."""
        return self.post(path, msgspec.json.encode(body), **(headers or {}))

    def post(self, path: str, body: bytes, content_type: str = "application/json", **headers: str) -> Exchange:
        """Send POST to `path` with `body` as it is."""
        return self.send("POST", path, body=body, headers={"content-type": content_type, **headers})

    def resend(self, exchange: Exchange, path: str = "") -> Exchange:
        """Send the request of `exchange` again, to `path` if given."""
        headers, body = exchange.request_headers, exchange.request_body
        return self.send(exchange.method, path or exchange.path, body=body, headers=headers, fresh=True)

    def send(
        self,
        method: str,
        path: str,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        fresh: bool = False,
    ) -> Exchange:
        """Send a request, and keep the exchange as evidence.

        Raises:
            RequestLimitError: the request limit is reached.
            httpx.HTTPError: there is no response.
        """
        request_headers = dict(headers or {})

        def exchange_once() -> Exchange:
            try:
                answer = self._request(method, path, request_headers, body)
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                # Some servers close a connection after an error without `Connection: close`, so send again.
                answer = self._request(method, path, request_headers, body)
            return Exchange(method, path, request_headers, body, *answer)

        return self.exchange((method, path, tuple(sorted(request_headers.items())), body), exchange_once, fresh=fresh)

    def exchange(self, key: tuple[object, ...], send: Callable[[], Exchange], *, fresh: bool = False) -> Exchange:
        """Return the earlier exchange for `key`, or call `send`; keep the exchange as evidence.

        Raises:
            RequestLimitError: the request limit is reached.
            httpx.HTTPError: there is no response.
        """
        result = None if fresh else self._cache.get(key)
        if result is None:
            if self.request_count >= self.max_requests:
                raise RequestLimitError(f"The limit of {self.max_requests} requests is reached")
            if self.timeouts >= _MAX_UNANSWERED:
                raise RequestLimitError(f"{self.timeouts} requests had no answer in time, which is the limit")
            self.request_count += 1
            try:
                result = send()
            except httpx.TimeoutException:
                self.timeouts += 1
                raise
            self._cache[key] = result
        self.exchanges.append(result)
        return result

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        url = self.target.url.rstrip("/") + path
        timeout = self.client.timeout.read or _MAX_RESPONSE_S
        deadline = monotonic() + timeout
        with self.client.stream(method, url, headers=dict(headers), content=body) as answer:
            received = bytearray()
            for chunk in answer.iter_bytes():
                received += chunk
                if len(received) > _MAX_BODY_BYTES:
                    raise httpx.DecodingError(f"The answer is longer than {_MAX_BODY_BYTES} bytes")
                if monotonic() > deadline:
                    raise httpx.ReadTimeout(f"The answer takes more than {timeout:g} seconds")
            return answer.status_code, {k.lower(): v for k, v in answer.headers.items()}, bytes(received)
