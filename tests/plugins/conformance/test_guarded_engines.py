"""Engines that need authentication: an unauthorized request says nothing about the engine, and never passes."""

from collections.abc import Iterator
from typing import Any, cast

import httpx
import pytest

from app.plugins.conformance.check import Level, Verdict
from app.plugins.conformance.client.probe import GrpcChannel, Probe, Target
from app.plugins.conformance.runner import UnreachableError
from tests.plugins.conformance.engines import check_engine


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("protocol", ["chariot-v2-kserve", "v2", "v1", "grps"])
def test_engine_that_rejects_every_request_is_not_judged(protocol: str, status: int) -> None:
    with pytest.raises(UnreachableError, match=r"http://engine\.local: Every request is refused .* --header-file"):
        check_engine(protocol, lambda _: httpx.Response(status, json={"error": "no key"}), model=None)


@pytest.mark.parametrize("protocol", ["chariot-v2-kserve", "v2", "v1"])
def test_checks_with_unauthorized_requests_do_not_pass(protocol: str) -> None:
    """Leave health open, because platforms request it without a key."""

    def answer(request: httpx.Request) -> httpx.Response:
        if "health" in request.url.path or request.url.path in {"/", "/ready"}:
            return httpx.Response(200, json={"live": True, "ready": True, "status": "alive"})
        return httpx.Response(401, json={"error": "no key"})

    report = check_engine(protocol, answer)
    assert not report.conforms
    passed = [finding for finding in report.findings if finding.verdict is Verdict.PASSED]
    assert passed
    assert not [finding.check.id for finding in passed if any(exchange.unauthorized for exchange in finding.exchanges)]
    for finding in report.findings:
        if finding.exchanges and finding.exchanges[-1].unauthorized:
            assert "--header-file" in finding.reason
            assert "--request" not in finding.reason


class _UnauthorizedCaller(GrpcChannel):
    """A gRPC engine that rejects every method except `open_method` with this status."""

    def __init__(self, status: int = 16, open_method: str = "none") -> None:
        self._status, self._open_method = status, open_method

    def wait_connected(self) -> None:
        pass

    def call(self, path: str, message: bytes, *, streamed: bool) -> tuple[int, str, list[bytes]]:
        # Each of these methods answers with one bool, its first field.
        return (0, "", [b"\x08\x01"]) if path.endswith(self._open_method) else (self._status, "no key", [])


@pytest.mark.parametrize("protocol", ["v2-grpc", "tensorflow-serving-grpc", "grps-grpc"])
def test_engine_that_rejects_every_grpc_call_is_not_judged(protocol: str) -> None:
    with pytest.raises(UnreachableError, match="--header-file"):
        check_engine(protocol, caller=_UnauthorizedCaller())


def test_unauthorized_checks_are_listed() -> None:
    """Reject all methods but liveness, so that the name of the model is unknown; no check may fail by that."""
    report = check_engine("v2-grpc", caller=_UnauthorizedCaller(7, "Live"), model=None)
    assert "V2G-006" in report.unauthorized
    assert "V2G-001" not in report.unauthorized
    should_checks = [finding.check.id for finding in report.findings if finding.check.level is Level.SHOULD]
    assert not {*should_checks} & {*report.unauthorized}


class _Dripping(httpx.SyncByteStream):
    """A body that arrives byte by byte and never ends."""

    def __iter__(self) -> Iterator[bytes]:
        while True:
            yield b" "


def test_timeout_covers_the_complete_answer() -> None:
    """Send bytes without end: the client's own timeout covers only the time between two bytes."""
    transport = httpx.MockTransport(lambda _: httpx.Response(200, stream=cast("Any", _Dripping())))
    with httpx.Client(transport=transport, timeout=0.05) as client:
        probe = Probe(client, Target(url="http://testserver.local"))
        with pytest.raises(httpx.ReadTimeout, match=r"takes more than 0\.05 seconds"):
            probe.get("/")
    assert probe.timeouts == 1
