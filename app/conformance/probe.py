"""Asking an engine over HTTP or gRPC, a bounded number of times, and remembering what it said."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

import httpx
import msgspec

from app.conformance.pictures import Picture

__all__ = ("BudgetSpentError", "Caller", "Exchange", "LateError", "NotJsonError", "Probe", "Target")

_TOO_LONG = 8_000_000
"""More of an answer than this is not read: no answer to the probe's pictures is as large."""


_MOST_UNANSWERED = 3
_LONGEST_ANSWER_S = 120
"""An answer takes no longer where the client has no limit of its own."""

_BARRED = (401, 403)


class BudgetSpentError(Exception):
    """As many requests were sent, or were left without an answer, as may be."""


class LateError(Exception):
    """A call over gRPC had no answer in time."""


class NotJsonError(Exception):
    """An answer is not the JSON that its reader needs."""


class Caller(Protocol):
    """Calls methods of an engine over gRPC."""

    def reach(self) -> None:
        """Wait until there is a connection.

        Raises:
            LateError: there is none in time.
        """
        ...

    def call(self, path: str, message: bytes, *, streamed: bool) -> tuple[int, str, Sequence[bytes]]:
        """The number of the status, its text, and the messages of the answer.

        Raises:
            LateError: no answer in time.
        """
        ...


@dataclass(frozen=True, slots=True)
class Exchange:
    """A request as it was sent and the answer as it came; header names are in lower case.

    Of a call over gRPC, the method is gRPC, the status is that of the call (0 is OK), and the bodies are the messages
    in protobuf's JSON.
    """

    method: str
    path: str
    sent_headers: Mapping[str, str]
    sent: bytes
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def ok(self) -> bool:
        """Whether the status is 200."""
        return self.status == 200

    @property
    def refused(self) -> bool:
        """Whether the status is one of the sender's faults."""
        return 400 <= self.status < 500

    @property
    def barred(self) -> bool:
        """Whether it is who asks that is refused, and not what is asked."""
        return self.status in _BARRED

    def json(self) -> Any:
        """The answer, read as JSON by its standard: UTF-8, no NaN.

        Raises:
            NotJsonError: it is not.
        """
        try:
            return msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NotJsonError(f"The answer is not JSON: {error}") from None

    def object(self) -> dict[str, Any]:
        """The answer, a JSON object.

        Raises:
            NotJsonError: it is not.
        """
        try:
            return msgspec.json.decode(self.body, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise NotJsonError(f"The answer is not a JSON object: {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What is tested.

    Args:
        url: where the engine is: the paths of the protocol are appended to it.
        model: the name of the model in the paths, for protocols that have one there.
        task_type: what the model does, as Chariot calls it; found from its answers where it is not given.
        pictures: asked about after the probe's own.
        request: the body of an inference that the engine can answer, for protocols of tensors; made up otherwise.
        health_path: where a platform would ask for health; the usual paths otherwise.
    """

    url: str
    model: str | None = None
    task_type: str | None = None
    pictures: Sequence[Picture] = ()
    request: Mapping[str, object] | None = None
    health_path: str | None = None


@dataclass(slots=True)
class Probe:
    """Sends requests one at a time. The same request is sent once, unless it is to be `fresh`.

    Args:
        client: with its timeout and its headers.
        target: what is tested.
        max_requests: after so many, `BudgetSpentError`.
        caller: for the protocols over gRPC.
    """

    client: httpx.Client
    target: Target
    max_requests: int = 400
    caller: Caller | None = None
    sent: int = 0
    unanswered: int = 0
    exchanges: list[Exchange] = field(default_factory=list[Exchange])
    """Those of the present clause; whoever holds the engine to clauses empties it."""
    _known: dict[tuple[object, ...], Exchange] = field(default_factory=dict[tuple[object, ...], Exchange])

    @property
    def barred(self) -> bool:
        """Whether nothing came back but refusals of who asks."""
        return bool(self._known) and all(each.barred for each in self._known.values())

    def get(self, path: str, **headers: str) -> Exchange:
        """GET `path`, which is appended to the engine's URL."""
        return self.send("GET", path, headers=headers)

    def post_json(self, path: str, body: object, headers: Mapping[str, str] | None = None) -> Exchange:
        """POST `body` as JSON."""
        encoded = msgspec.json.encode(body)
        return self.send("POST", path, body=encoded, headers={"content-type": "application/json", **(headers or {})})

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
            BudgetSpentError: enough were sent.
            httpx.HTTPError: no answer.
        """
        sent_headers = dict(headers or {})

        def ask() -> Exchange:
            try:
                answer = self._exchanged(method, path, sent_headers, body)
            except (httpx.ReadError, httpx.WriteError, httpx.RemoteProtocolError):
                # Some servers close a connection behind an error without saying so: that is no answer to this request.
                answer = self._exchanged(method, path, sent_headers, body)
            return Exchange(method, path, sent_headers, body, *answer)

        return self.asked((method, path, tuple(sorted(sent_headers.items())), body), ask, fresh=fresh)

    def asked(self, key: tuple[object, ...], ask: Callable[[], Exchange], *, fresh: bool = False) -> Exchange:
        """What `ask` brings, or brought when it was last asked for by `key`; it is kept as evidence.

        Raises:
            BudgetSpentError: enough were sent.
            LateError: no answer in time, over gRPC.
            httpx.HTTPError: no answer, over HTTP.
        """
        exchange = None if fresh else self._known.get(key)
        if exchange is None:
            if self.sent >= self.max_requests:
                raise BudgetSpentError(f"{self.max_requests} requests were sent, which is as many as may be")
            if self.unanswered >= _MOST_UNANSWERED:
                raise BudgetSpentError(f"{self.unanswered} requests had no answer in time, which is as many as may be")
            self.sent += 1
            try:
                exchange = ask()
            except (httpx.TimeoutException, LateError):
                self.unanswered += 1
                raise
            self._known[key] = exchange
        self.exchanges.append(exchange)
        return exchange

    def _exchanged(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes
    ) -> tuple[int, Mapping[str, str], bytes]:
        url = self.target.url.rstrip("/") + path
        longest = self.client.timeout.read or _LONGEST_ANSWER_S
        late = monotonic() + longest
        with self.client.stream(method, url, headers=dict(headers), content=body) as answer:
            read = bytearray()
            for part in answer.iter_bytes():
                read += part
                if len(read) > _TOO_LONG:
                    raise httpx.DecodingError(f"The answer is longer than {_TOO_LONG} bytes")
                if monotonic() > late:
                    raise httpx.ReadTimeout(f"The answer takes more than {longest:g} seconds")
            return answer.status_code, {k.lower(): v for k, v in answer.headers.items()}, bytes(read)
