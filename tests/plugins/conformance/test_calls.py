"""gRPC calls to engines that hang or are unreachable."""

import threading
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, cast

import grpc
import httpx
import pytest

from app.plugins.conformance.check import Verdict
from app.plugins.conformance.client.calls import open_channel
from app.plugins.conformance.runner import UnreachableError
from tests.plugins.conformance.engines import check_engine


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
    with (
        hanging() as url,
        open_channel(url, {}, 0.2) as channel,
        pytest.raises(httpx.TimeoutException, match=r"within 0\.2 seconds"),
    ):
        channel.call("/inference.GRPCInferenceService/ServerLive", b"", streamed=False)


def test_hanging_engine_receives_few_requests() -> None:
    with hanging() as url, open_channel(url, {}, 0.1) as channel:
        report = check_engine("v2-grpc", caller=channel)
    assert not report.conforms
    assert report.requests == 3
    assert report.count(Verdict.PASSED) == 0


def test_unreachable_engine_is_reported() -> None:
    url = "grpc://127.0.0.1:1"
    with open_channel(url, {}, 0.2) as channel, pytest.raises(UnreachableError, match=f"{url}: Nothing speaks gRPC"):
        check_engine("grps-grpc", caller=channel, url=url)
