"""Test how request information is read from a gRPC call of any service."""

import asyncio
import math
from typing import Any, NoReturn, cast

import grpc
import pytest

from app.core.engine.request_context import RequestContext
from app.core.protocols.grpc_protocol import Call, abort_call, read_call_info, unary_handler
from app.core.protocols.status import grpc_status, http_status
from tasks.inference.error import ErrorKind, invalid


class FakeCall:
    """Fake a call that has only a deadline and a timeout in its metadata."""

    def __init__(self, remaining: float | None, milliseconds: str | None = None) -> None:
        self._remaining = remaining
        self._metadata = () if milliseconds is None else (("x-request-timeout-ms", milliseconds),)

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return self._metadata

    def time_remaining(self) -> float | None:
        return self._remaining

    def peer(self) -> str:
        return "unix:"

    def set_trailing_metadata(self, pairs: Any) -> None:
        self.trailing_metadata = dict(pairs)


@pytest.mark.parametrize(
    ("remaining", "milliseconds", "expected"),
    [
        (None, None, None),
        (1.5, None, 1.5),
        (-0.1, None, -0.1),
        # Many libraries send a deadline of years if the client sets none; gRPC can encode at most 27000 h.
        (3e6, None, 2_592_000),
        (97_199_999.9, None, 2_592_000),
        (None, "250", 0.25),
        (1.5, "250", 0.25),
        (1.5, "9000", 1.5),
        (1.5, "1e99", 1e96),
        *((None, invalid, math.nan) for invalid in ("soon", "", "nan", "-5")),
    ],
)
def test_timeout_is_the_earlier_of_deadline_and_metadata(
    remaining: float | None, milliseconds: str | None, expected: float | None
) -> None:
    timeout = read_call_info(cast("Call", FakeCall(remaining, milliseconds)), "test").timeout
    assert timeout == (None if expected is None else pytest.approx(expected, nan_ok=True))


class DisconnectedCall(FakeCall):
    """Fake a call whose client disconnects before the error is sent."""

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise grpc.aio.InternalError(f"Failed to send {code}: {details}")


def test_disconnect_while_an_error_is_sent_is_a_cancellation() -> None:
    """Raise `CancelledError`, because gRPC logs a traceback for every other exception."""
    context = cast("Call", DisconnectedCall(None))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(abort_call(context, read_call_info(context, "test"), invalid("no")))


def test_response_headers_are_trailing_metadata() -> None:
    async def method(data: bytes, context: RequestContext) -> bytes:
        context.response_headers["charioteer-similarity"] = "0.5"
        return data

    call = FakeCall(None)
    handler: Any = unary_handler("test", method)
    assert asyncio.run(handler.unary_unary(b"x", call)) == b"x"
    assert call.trailing_metadata.keys() == {"x-request-id", "charioteer-similarity"}


@pytest.mark.parametrize("kind", ErrorKind)
def test_every_kind_of_error_has_a_status_over_http_and_grpc(kind: ErrorKind) -> None:
    assert http_status(kind) // 100 in (4, 5)
    assert grpc_status(kind) is not grpc.StatusCode.OK
