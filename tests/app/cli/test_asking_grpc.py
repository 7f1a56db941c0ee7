"""Asking over gRPC, of a server that is busy at first, wants a token, or answers with something else."""

from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from app.cli.asking_grpc import GrpcAsker
from app.evaluation.collecting import AskingError
from app.proto import message_class
from tests.support.evaluations import item

GRPC: Any = grpc
TOKEN = {"Authorization": "Bearer abc"}


class Engine(grpc.GenericRpcHandler):
    """Answers a call with `outcomes`, in their order: bytes, or a status; remembers what came with it."""

    def __init__(self, outcomes: Sequence[Any]) -> None:
        self.outcomes = [*outcomes]
        self.metadata: list[dict[str, Any]] = []

    def service(self, handler_call_details: Any) -> Any:
        def answer(_: bytes, context: Any) -> bytes:
            self.metadata.append(dict(handler_call_details.invocation_metadata))
            outcome = self.outcomes.pop(0)
            if not isinstance(outcome, bytes):
                context.abort(outcome, "told so")
            return outcome

        return GRPC.unary_unary_rpc_method_handler(answer)


@contextmanager
def asking(engine: Engine, protocol: str = "v2-grpc") -> Generator[GrpcAsker]:
    server: Any = grpc.server(ThreadPoolExecutor(2), handlers=[engine])
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    asker = GrpcAsker(f"127.0.0.1:{port}", protocol, "m", {}, 20, TOKEN)
    try:
        yield asker
    finally:
        asker.close()
        server.stop(None).wait()


def answer_of(records: bytes) -> bytes:
    made = message_class("inference.ModelInferResponse")()
    made.outputs.add(name="predictions", datatype="BYTES", shape=[1]).contents.bytes_contents.append(records)
    return made.SerializeToString()


def test_a_server_that_is_busy_is_asked_again_and_gets_the_headers() -> None:
    engine = Engine([grpc.StatusCode.RESOURCE_EXHAUSTED, answer_of(b'[{"label": "cat", "score": 1}]')])
    with asking(engine) as ask:
        assert ask(item(), b"x") == [{"label": "cat", "score": 1}]
    assert [each["authorization"] for each in engine.metadata] == ["Bearer abc"] * 2


@pytest.mark.parametrize(
    ("outcome", "said"),
    [
        (grpc.StatusCode.NOT_FOUND, "NOT_FOUND: told so"),
        (b"\xff\xff", "The answer has no records"),
        (b"", "The answer has no records"),
        (answer_of(b"7"), "The answer has no records"),
        (answer_of(b"\xff"), "The answer has no records"),
        (answer_of(b"[" * 5000), "The answer has no records"),
    ],
)
def test_answers_without_records_are_one_failure(outcome: Any, said: str) -> None:
    with asking(Engine([outcome])) as ask, pytest.raises(AskingError, match=said):
        ask(item(), b"x")
