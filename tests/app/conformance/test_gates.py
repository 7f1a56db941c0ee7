"""Engines behind a gate: what is refused for who asks says nothing of the engine, and never passes."""

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, cast

import httpx
import pytest

from app.conformance.clause import Level, Verdict
from app.conformance.holding import Holding, Report, UnreachableError
from app.conformance.probe import Probe, Target
from tests.app.conformance.engines import KNOWN

Answer = Callable[[httpx.Request], httpx.Response]


@contextmanager
def held(protocol: str, answer: Answer, model: str | None = "m") -> Generator[Holding]:
    """An engine that answers so."""
    with httpx.Client(transport=httpx.MockTransport(answer)) as client:
        yield Holding(KNOWN[protocol], Probe(client, Target(url="http://testserver.local", model=model)))


def looked_at(protocol: str, answer: Answer) -> Report:
    """What is found of it."""
    with held(protocol, answer) as holding:
        return holding.report()


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("protocol", ["chariot-v2-kserve", "v2", "v1", "grps"])
def test_an_engine_that_refuses_everybody_is_not_judged(protocol: str, status: int) -> None:
    with (
        held(protocol, lambda _: httpx.Response(status, json={"error": "no key"}), model=None) as holding,
        pytest.raises(UnreachableError, match=r"http://testserver\.local: Every request is refused .* --header-file"),
    ):
        holding.report()


@pytest.mark.parametrize("protocol", ["chariot-v2-kserve", "v2", "v1"])
def test_only_what_was_let_through_passes(protocol: str) -> None:
    """Health is open, as it is where platforms ask for it without a key."""

    def answer(request: httpx.Request) -> httpx.Response:
        if "health" in request.url.path or request.url.path in {"/", "/ready"}:
            return httpx.Response(200, json={"live": True, "ready": True, "status": "alive"})
        return httpx.Response(401, json={"error": "no key"})

    report = looked_at(protocol, answer)
    assert not report.conforms
    passed = [each for each in report.findings if each.verdict is Verdict.PASSED]
    assert passed
    assert not [each.clause.id for each in passed if any(exchange.barred for exchange in each.exchanges)]
    for finding in report.findings:
        if finding.exchanges and finding.exchanges[-1].barred:
            assert "--header-file" in finding.reason
            assert "--request" not in finding.reason


class _Barring:
    """An engine over gRPC that refuses everything but `open_to_all` for who asks, with this status."""

    def __init__(self, status: int = 16, open_to_all: str = "none") -> None:
        self._status, self._open = status, open_to_all

    def reach(self) -> None:
        pass

    def call(self, path: str, message: bytes, *, streamed: bool) -> tuple[int, str, list[bytes]]:
        # Each of these methods answers with one bool, its first field.
        return (0, "", [b"\x08\x01"]) if path.endswith(self._open) else (self._status, "no key", [])


@pytest.mark.parametrize("protocol", ["v2-grpc", "grps-grpc"])
def test_an_engine_that_refuses_everybody_over_grpc_is_not_judged(protocol: str) -> None:
    with httpx.Client() as client:
        probe = Probe(client, Target(url="grpc://engine.local", model="m"), caller=_Barring())
        with pytest.raises(UnreachableError, match="--header-file"):
            Holding(KNOWN[protocol], probe).report()


def test_what_needs_another_key_is_named() -> None:
    """The name of the model is asked of the repository, which is not for everybody; nothing fails by that."""
    with httpx.Client() as client:
        probe = Probe(client, Target(url="grpc://engine.local"), caller=_Barring(7, "Live"))
        report = Holding(KNOWN["v2-grpc"], probe).report()
    assert "V2G-005" in report.barred
    assert "V2G-001" not in report.barred
    assert not {each.clause.id for each in report.findings if each.clause.level is Level.SHOULD} & {*report.barred}


class _Dripping(httpx.SyncByteStream):
    """A body that comes byte by byte, and never ends."""

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield b" "


def test_an_answer_that_drips_is_late_after_the_timeout() -> None:
    """The client's own timeout is between two bytes."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=cast("Any", _Dripping())))
    with httpx.Client(transport=transport, timeout=0.05) as client:
        probe = Probe(client, Target(url="http://testserver.local"))
        with pytest.raises(httpx.ReadTimeout, match=r"takes more than 0\.05 seconds"):
            probe.get("/")
    assert probe.unanswered == 1
