"""gRPC calls to engines that hang or are unreachable."""

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
from tests.app.conformance.engines import PROTOCOLS_BY_NAME


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


def test_call_without_answer_times_out() -> None:
    with hanging() as url, connected(url, {}, 0.2) as channel, pytest.raises(LateError, match=r"within 0\.2 seconds"):
        channel.call("/inference.GRPCInferenceService/ServerLive", b"", streamed=False)


def test_hanging_engine_receives_few_requests() -> None:
    with hanging() as url, connected(url, {}, 0.1) as channel, httpx.Client() as client:
        report = Holding(
            PROTOCOLS_BY_NAME["v2-grpc"], Probe(client, Target(url=url, model="m"), caller=channel)
        ).report()
    assert not report.conforms
    assert report.requests == 3
    assert report.counted(Verdict.PASSED) == 0


def test_unreachable_engine_is_reported() -> None:
    with connected("grpc://127.0.0.1:1", {}, 0.2) as channel, httpx.Client() as client:
        runner = Holding(
            PROTOCOLS_BY_NAME["grps-grpc"], Probe(client, Target(url="grpc://127.0.0.1:1"), caller=channel)
        )
        with pytest.raises(UnreachableError, match=r"grpc://127\.0\.0\.1:1: Nothing speaks gRPC"):
            runner.reach()
