"""What is read from a call over gRPC, whatever its service."""

import asyncio
from typing import Any, NoReturn, cast

import grpc
import pytest

from app.protocols.grpc_protocol import Call, call_ended, caller_of_call
from tasks.exchange.error import invalid


class Context:
    """A call with nothing but a deadline."""

    def __init__(self, remaining: float | None) -> None:
        self._remaining = remaining

    def invocation_metadata(self) -> None:
        return None

    def time_remaining(self) -> float | None:
        return self._remaining

    def peer(self) -> str:
        return "unix:"

    def set_trailing_metadata(self, pairs: Any) -> None:
        assert pairs


@pytest.mark.parametrize(
    ("remaining", "expected"), [(None, None), (1.5, 1.5), (-0.1, -0.1), (3e6, None), (97_199_999.9, None)]
)
def test_a_deadline_of_years_is_none(remaining: float | None, expected: float | None) -> None:
    """Most libraries of gRPC send such a one for callers who wait for ever; the longest that travels is 27000 h."""
    assert caller_of_call(cast("Call", Context(remaining)), "test").timeout == expected


class Left(Context):
    """A call whose sender is gone when it is told of an error."""

    async def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        raise grpc.aio.InternalError(f"Failed to send {code}: {details}")


def test_a_sender_who_leaves_at_the_last_moment_is_no_fault_of_the_method() -> None:
    """gRPC logs whatever a method raises with a traceback, but no call that was cancelled."""
    context = cast("Call", Left(None))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(call_ended(context, caller_of_call(context, "test"), invalid("no")))
