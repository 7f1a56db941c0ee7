"""gRPC requests of an evaluation to a server that is busy at first, wants a token, or returns something else."""

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from app.core.proto import message_class
from app.plugins.evaluation.grpc_client import open_grpc_client
from app.plugins.evaluation.runner import InferenceClient, InferenceClientError
from tests.support.data.evaluation_samples import item

GRPC: Any = grpc
TOKEN = {"Authorization": "Bearer abc"}


class FakeServer(grpc.GenericRpcHandler):
    """Answer each call with the next of `outcomes`, which are bytes or a status, and keep the call's metadata."""

    def __init__(self, outcomes: Sequence[Any]) -> None:
        self.outcomes = [*outcomes]
        self.metadata: list[dict[str, Any]] = []

    def service(self, handler_call_details: Any) -> Any:
        def answer(_: bytes, context: Any) -> bytes:
            self.metadata.append(dict(handler_call_details.invocation_metadata))
            outcome = self.outcomes.pop(0)
            if not isinstance(outcome, bytes):
                context.abort(outcome, "no model")
            return outcome

        return GRPC.unary_unary_rpc_method_handler(answer)


@contextmanager
def connected(fake: FakeServer, protocol: str = "v2-grpc") -> Generator[InferenceClient]:
    server: Any = grpc.server(ThreadPoolExecutor(2), handlers=[fake])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with open_grpc_client(f"127.0.0.1:{port}", protocol, "m", {}, 20, TOKEN) as client:
            yield client
    finally:
        server.stop(None).wait()


def response_with(records: bytes) -> bytes:
    message = message_class("inference.ModelInferResponse")()
    message.outputs.add(name="predictions", datatype="BYTES", shape=[1]).contents.bytes_contents.append(records)
    return message.SerializeToString()


def test_busy_server_is_retried_with_the_headers() -> None:
    fake = FakeServer([grpc.StatusCode.RESOURCE_EXHAUSTED, response_with(b'[{"label": "cat", "score": 1}]')])
    with connected(fake) as infer:
        assert infer(item(), b"x") == [{"label": "cat", "score": 1}]
    assert [metadata["authorization"] for metadata in fake.metadata] == ["Bearer abc"] * 2


@pytest.mark.parametrize(
    "outcome", [b"\xff\xff", b"", *map(response_with, (b"7", b"\xff", b"[" * 5000)), grpc.StatusCode.NOT_FOUND]
)
def test_response_without_records_is_an_error(outcome: Any) -> None:
    message = "The answer has no records" if isinstance(outcome, bytes) else "NOT_FOUND: no model"
    with connected(FakeServer([outcome])) as infer, pytest.raises(InferenceClientError, match=message):
        infer(item(), b"x")
