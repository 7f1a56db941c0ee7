"""What is read from a call over gRPC, whatever its service."""

import asyncio
from typing import Any, NoReturn, cast

import grpc
import pytest

from app.protocols.grpc_protocol import Call, call_ended, caller_of_call
from tasks.exchange.error import invalid


class Context:
    """A call with nothing but a deadline and a timeout in its metadata."""

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
        assert pairs


@pytest.mark.parametrize(
    ("remaining", "milliseconds", "expected"),
    [
        (None, None, None),
        (1.5, None, 1.5),
        (-0.1, None, -0.1),
        # Many libraries send a deadline of years for clients that set none; the longest that travels is 27000 h.
        (3e6, None, 2_592_000),
        (97_199_999.9, None, 2_592_000),
        (None, "250", 0.25),
        (1.5, "250", 0.25),
        (1.5, "9000", 1.5),
        (1.5, "1e99", 1e96),
    ],
)
def test_timeout_is_the_earlier_of_deadline_and_metadata(
    remaining: float | None, milliseconds: str | None, expected: float | None
) -> None:
    timeout = caller_of_call(cast("Call", Context(remaining, milliseconds)), "test").timeout
    assert timeout == (None if expected is None else pytest.approx(expected))


class Left(Context):
    """A call whose sender is gone when it is told of an error."""

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise grpc.aio.InternalError(f"Failed to send {code}: {details}")


def test_a_sender_who_leaves_at_the_last_moment_is_no_fault_of_the_method() -> None:
    """gRPC logs whatever a method raises with a traceback, but no call that was cancelled."""
    context = cast("Call", Left(None))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(call_ended(context, caller_of_call(context, "test"), invalid("no")))
