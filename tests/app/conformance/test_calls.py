"""Calls over gRPC to engines that are late, or not there."""

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

import grpc
import httpx
import pytest

from app.conformance.calls import connected
from app.conformance.clause import Verdict
from app.conformance.holding import Holding, UnreachableError
from app.conformance.probe import LateError, Probe, Target
from tests.app.conformance.engines import KNOWN


@contextmanager
def hanging() -> Generator[str]:
    """A server that answers nothing until it is to end."""
    ended = threading.Event()
    with ThreadPoolExecutor(4) as pool:

        def hang(data: bytes, context: Any) -> bytes:
            ended.wait(30)
            return b""

        class _Any(grpc.GenericRpcHandler):
            def service(self, handler_call_details: Any) -> Any:
                return cast("Any", grpc.unary_unary_rpc_method_handler)(hang)

        server = grpc.server(pool)
        server.add_generic_rpc_handlers((_Any(),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            ended.set()
            server.stop(0).wait(10)


def test_a_call_that_is_late() -> None:
    with hanging() as url, connected(url, {}, 0.2) as channel, pytest.raises(LateError, match=r"within 0\.2 seconds"):
        channel.call("/inference.GRPCInferenceService/ServerLive", b"", streamed=False)


def test_an_engine_that_hangs_is_not_asked_for_ever() -> None:
    with hanging() as url, connected(url, {}, 0.1) as channel, httpx.Client() as client:
        report = Holding(KNOWN["v2-grpc"], Probe(client, Target(url=url, model="m"), caller=channel)).report()
    assert not report.conforms
    assert report.requests == 3
    assert report.counted(Verdict.PASSED) == 0


def test_an_engine_that_is_not_there() -> None:
    with connected("grpc://127.0.0.1:1", {}, 0.2) as channel, httpx.Client() as client:
        held = Holding(KNOWN["grps-grpc"], Probe(client, Target(url="grpc://127.0.0.1:1"), caller=channel))
        with pytest.raises(UnreachableError, match=r"grpc://127\.0\.0\.1:1: Nothing speaks gRPC"):
            held.reach()
