"""Engines that hang, are unreachable, or reject requests without a key, which says nothing and never passes."""

import threading
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

import grpc
import httpx
import pytest

from app.plugins.conformance.check import CheckVerdict, Level
from app.plugins.conformance.options import ConformanceOptions, open_runner
from app.plugins.conformance.probe import Probe, Target
from app.plugins.conformance.runner import UnreachableError
from tests.plugins.conformance.engines import ScriptedCaller, check_engine


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("protocol", ["chariot-v2-kserve", "v2", "v1"])
def test_engine_that_rejects_every_request_is_not_judged(protocol: str, status: int) -> None:
    with pytest.raises(UnreachableError, match=r"http://engine\.local: Every request is rejected .* --header-file"):
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
    passed = [finding for finding in report.findings if finding.verdict is CheckVerdict.PASSED]
    assert passed
    assert not [finding.check.id for finding in passed if any(exchange.unauthorized for exchange in finding.exchanges)]
    for finding in report.findings:
        if finding.exchanges and finding.exchanges[-1].unauthorized:
            assert "--header-file" in finding.reason
            assert "--request" not in finding.reason


def test_engine_that_rejects_every_grpc_call_is_not_judged() -> None:
    with pytest.raises(UnreachableError, match="--header-file"):
        check_engine("v2-grpc", caller=ScriptedCaller(lambda _: (16, "no key", [])))


def test_unauthorized_checks_are_listed() -> None:
    """Reject all methods but liveness, so that the name of the model is unknown; no check may fail by that."""

    def reply(path: str) -> tuple[int, str, list[bytes]]:
        # Liveness is one bool, the first field.
        return (0, "", [b"\x08\x01"]) if path.endswith("Live") else (7, "no key", [])

    report = check_engine("v2-grpc", caller=ScriptedCaller(reply), model=None)
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


@contextmanager
def hanging() -> Generator[str]:
    """Run a gRPC server that does not answer until it stops."""
    stopping = threading.Event()
    with ThreadPoolExecutor(4) as pool:

        def hang(data: bytes, context: Any) -> bytes:
            stopping.wait(30)
            return b""

        class _HangingHandler(grpc.GenericRpcHandler):
            def service(self, handler_call_details: Any) -> Any:
                return cast("Any", grpc.unary_unary_rpc_method_handler)(hang)

        server = grpc.server(pool)
        server.add_generic_rpc_handlers((_HangingHandler(),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            stopping.set()
            server.stop(0).wait(10)


def test_hanging_engine_receives_few_requests() -> None:
    options = ConformanceOptions(protocol="v2-grpc", timeout=0.1)
    with hanging() as url, open_runner(url, options) as runner:
        channel = runner.probe.transport
        assert channel
        with pytest.raises(httpx.TimeoutException, match=r"within 0\.1 seconds"):
            channel.call("/inference.GRPCInferenceService/ServerLive", b"")
        report = check_engine("v2-grpc", caller=channel)
    assert not report.conforms
    assert report.requests == 3
    assert report.count(CheckVerdict.PASSED) == 0
