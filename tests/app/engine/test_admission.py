"""Who may come in, and for how long."""

import math
import time
from collections.abc import Mapping

import pytest

from app.engine.admission import ARRIVED, Admission, Bounds
from app.engine.events import RequestInfo
from app.engine.story import RequestContext
from tasks.exchange.error import ErrorKind, InferenceError


def caller(timeout: float | None = None) -> RequestInfo:
    return RequestInfo(protocol="test", request_id="1", returned={}, timeout=timeout)


def admission(
    *, own: Mapping[str, int] | None = None, several: bool = False, wait: float = 0, workers: int = 2, **bounds: float
) -> Admission:
    return Admission(
        workers,
        Bounds(**bounds),  # pyright: ignore[reportArgumentType]
        own_bound=lambda model: (own or {}).get(model),
        several=lambda: several,
        expected_wait=lambda _: wait,
    )


def admitted(to: Admission, model: str, *, at_most: int = 1000) -> int:
    """How many requests for a model come in before one is refused."""
    for count in range(at_most):
        try:
            to.admit(caller(), model, None)
        except InferenceError:
            return count
    return at_most


def test_as_many_come_in_as_there_are_places() -> None:
    doors = admission(max_waiting=5)
    assert admitted(doors, "a") == 7
    assert (doors.in_hand, doors.waiting) == (7, 5)
    doors.leave("a", caller())
    assert admitted(doors, "a") == 1


def test_one_model_leaves_places_to_the_others() -> None:
    doors = admission(max_waiting=10, several=True)
    assert admitted(doors, "a") == 7
    assert admitted(doors, "b") == 5


@pytest.mark.parametrize(("own", "each", "expected"), [({"a": 1}, 8, 3), ({}, 8, 10), ({"a": 0}, None, 3)])
def test_bounds_of_a_model_go_before_those_of_all(own: Mapping[str, int], each: int | None, expected: int) -> None:
    doors = Admission(
        2,
        Bounds(max_waiting=100, max_waiting_each=each),
        own_bound=own.get,
        several=lambda: True,
        expected_wait=lambda _: 0,
    )
    assert admitted(doors, "a") == expected


def test_whoever_would_wait_too_long_is_refused_with_the_time_to_wait() -> None:
    doors = admission(max_queue_seconds=1, wait=2.3)
    sender = caller()
    with pytest.raises(InferenceError, match=r"wait for about 2\.3 s; try again later") as caught:
        doors.admit(sender, "a", None)
    assert caught.value.kind is ErrorKind.OVERLOADED
    assert sender.returned == {"retry-after": "3"}
    assert doors.in_hand == 0


def test_whoever_would_be_answered_too_late_is_refused_at_once() -> None:
    doors = admission(wait=2)
    with pytest.raises(InferenceError, match="longer than its timeout"):
        doors.admit(caller(), "a", time.monotonic() + 1)
    doors.admit(caller(), "a", time.monotonic() + 3)


def test_a_sender_may_give_less_time_than_the_server_never_more() -> None:
    doors = admission(request_timeout=10)
    now = time.monotonic()
    for given, expected in ((None, 10), (1, 1), (60, 10)):
        deadline = doors.deadline(caller(given))
        assert deadline is not None
        assert now + expected <= deadline <= now + expected + 60
        assert deadline - now < expected + 5
    assert admission().deadline(caller()) is None


@pytest.mark.parametrize("timeout", [math.nan, math.inf, 1e12])
def test_a_time_that_is_none_is_refused(timeout: float) -> None:
    with pytest.raises(InferenceError, match="x-request-timeout-ms: Expected a number of milliseconds") as caught:
        admission(request_timeout=10).deadline(caller(timeout))
    assert caught.value.kind is ErrorKind.INVALID_REQUEST


@pytest.mark.parametrize("timeout", [0, -1, -math.inf])
def test_a_time_that_is_over_is_too_late(timeout: float) -> None:
    with pytest.raises(InferenceError) as caught:
        admission().deadline(caller(timeout))
    assert caught.value.kind is ErrorKind.DEADLINE_EXCEEDED


def test_bodies_that_arrive_count_until_they_are_here() -> None:
    doors = admission(max_waiting=38)
    assert doors.excess(None) is None
    arriving = [doors.expect() for _ in range(40)]
    found = doors.excess(None)
    assert found is not None
    assert (found.message, found.retry_after) == (
        "The server has 40 requests in flight and takes no more; try again later",
        1,
    )
    arriving[0]()
    arriving[0]()
    assert doors.excess(None) is None


def test_few_places_keep_no_small_bodies_from_arriving() -> None:
    doors = admission(max_waiting=0)
    arriving = [doors.expect() for _ in range(31)]
    assert doors.excess(None) is None
    arriving.append(doors.expect())
    assert doors.excess(None) is not None


def test_body_that_is_expected_takes_no_place_once_it_is_admitted() -> None:
    doors = admission(max_waiting=38)
    token = ARRIVED.set(doors.expect())
    try:
        doors.admit(caller(), "a", None)
    finally:
        ARRIVED.reset(token)
    arriving = [doors.expect() for _ in range(38)]
    assert doors.excess(None) is None
    arriving.append(doors.expect())
    assert doors.excess(None) is not None


def test_excess_and_admit_refuse_for_the_same_reasons() -> None:
    doors = admission(max_queue_seconds=1, wait=2.3)
    found = doors.excess("a")
    assert found is not None
    with pytest.raises(InferenceError) as caught:
        doors.check(caller(), "a")
    assert (found.message, found.retry_after) == (caught.value.message, 3)
    assert doors.excess(None) is None


@pytest.mark.parametrize(("wait", "expected"), [(0, None), (0.5, 1)])
def test_admitted_request_may_wait_for_as_long_as_the_bound_says(wait: float, expected: float | None) -> None:
    assert admission(max_queue_seconds=1, wait=wait).admit(caller(), "a", None) == expected


def test_request_that_waited_too_long_is_refused_when_its_turn_comes() -> None:
    story = RequestContext(caller(), "a")
    story.begin()
    story.check_queue_time()
    story.max_queue_seconds = 0
    with pytest.raises(InferenceError, match="longer than the server allows; try again later") as caught:
        story.check_queue_time()
    assert caught.value.kind is ErrorKind.OVERLOADED
    assert story.caller.returned == {"retry-after": "1"}
