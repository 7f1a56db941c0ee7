"""Admission: limits, deadlines and arriving bodies."""

import math
import time
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.admission import Admission, QueueLimits
from tasks.inference.error import ErrorKind, InferenceError
from tests.core.engine.engines import new_context
from tests.support.polling import wait_until
from tests.support.rejection import rejects


def request_info(client: str = "", address: str = "", timeout: float | None = None) -> RequestContext:
    return new_context(client=client, address=address, timeout=timeout)


@contextmanager
def arriving(admission: Admission, count: int) -> Generator[None]:
    """Let `count` bodies arrive."""
    with ExitStack() as stack:
        for _ in range(count):
            stack.enter_context(admission.arriving())
        yield


def admission_of(
    *,
    model_limits: Mapping[str, int] | None = None,
    multi_model: bool = False,
    wait: float = 0,
    workers: int = 2,
    **bounds: Any,
) -> Admission:
    return Admission(
        workers,
        QueueLimits(**bounds),
        model_limit=lambda model: (model_limits or {}).get(model),
        multi_model=lambda: multi_model,
        expected_wait=lambda _: wait,
    )


def admitted_requests(admission: Admission, model: str = "a", info: RequestContext | None = None) -> int:
    """Return how many of 110 requests for a model are admitted before one is rejected."""
    for count in range(110):
        try:
            admission.acquire(info or request_info(), model)
        except InferenceError:
            return count
    return 110


def test_requests_over_workers_and_queue_are_rejected() -> None:
    admission = admission_of(max_waiting=5)
    assert admitted_requests(admission, "a") == 7
    assert (admission.in_flight, admission.waiting) == (7, 5)
    admission.release("a", request_info())
    assert admitted_requests(admission, "a") == 1


def test_one_model_cannot_fill_the_queue_of_several_models() -> None:
    admission = admission_of(max_waiting=10, multi_model=True)
    assert admitted_requests(admission, "a") == 7
    assert admitted_requests(admission, "b") == 5


@pytest.mark.parametrize(("model", "requests"), [("a", "for 'a'"), ("", "that name the model in their body")])
def test_error_of_a_full_queue_of_a_model_says_which_requests_fill_it(model: str, requests: str) -> None:
    admission = admission_of(max_waiting=4, multi_model=True)
    assert admitted_requests(admission, model) == 4
    with pytest.raises(InferenceError, match=f"The server has 4 requests {requests} in flight and takes no more"):
        admission.acquire(request_info(), model)


@pytest.mark.parametrize(
    ("model_limits", "model_limit", "expected"), [({"a": 1}, 8, 3), ({}, 8, 10), ({"a": 0}, None, 3)]
)
def test_limit_of_a_model_overrides_the_limit_for_all_models(
    model_limits: Mapping[str, int], model_limit: int | None, expected: int
) -> None:
    bounds: dict[str, Any] = {"max_waiting": 100, "max_waiting_each": model_limit}
    admission = admission_of(model_limits=model_limits, multi_model=True, **bounds)
    assert admitted_requests(admission, "a") == expected


def test_request_over_max_queue_seconds_is_rejected_with_retry_after() -> None:
    admission = admission_of(max_queue_seconds=1, wait=2.3, workers=0)
    info = request_info()
    with pytest.raises(InferenceError, match=r"wait for about 2\.3 s; try again later") as caught:
        admission.acquire(info, "a")
    assert caught.value.kind is ErrorKind.OVERLOADED
    assert caught.value.retry_after == 3
    assert admission.in_flight == 0
    overload = admission.overload("a")
    assert overload is not None
    assert (overload.message, overload.retry_after) == (caught.value.message, 3)
    assert admission.overload(None) is None


def test_request_whose_deadline_ends_before_the_expected_wait_is_rejected() -> None:
    admission = admission_of(wait=2, workers=0)
    with pytest.raises(InferenceError, match="longer than its timeout"):
        admission.acquire(request_info(timeout=1), "a")
    admission.acquire(request_info(timeout=1), "a", until_deadline=True)
    admission.acquire(request_info(timeout=3), "a")


def test_request_timeout_can_only_shorten_the_server_timeout() -> None:
    admission = admission_of(request_timeout=10)
    now = time.monotonic()
    for timeout, expected in ((None, 10), (1, 1), (60, 10)):
        context = request_info(timeout=timeout)
        admission.acquire(context, "a")
        assert context.deadline is not None
        assert now + expected <= context.deadline < now + expected + 5
    admission_of().acquire(context := request_info(), "a")
    assert context.deadline is None


@pytest.mark.parametrize("timeout", [math.nan, math.inf, 1e12])
def test_invalid_timeout_is_rejected(timeout: float) -> None:
    with rejects("x-request-timeout-ms: Expected a number of milliseconds"):
        admission_of(request_timeout=10).acquire(request_info(timeout=timeout), "a")


@pytest.mark.parametrize("timeout", [0, -1, -math.inf])
def test_timeout_of_zero_or_less_is_deadline_exceeded(timeout: float) -> None:
    with rejects(kind=ErrorKind.DEADLINE_EXCEEDED):
        admission_of().acquire(request_info(timeout=timeout), "a")


def test_arriving_bodies_count_as_in_flight_until_they_have_arrived() -> None:
    admission = admission_of(max_waiting=38)
    assert admission.overload(None) is None
    with arriving(admission, 39):
        with admission.arriving():
            excess = admission.overload(None)
        assert excess is not None
        assert (excess.message, excess.retry_after) == (
            "The server has 40 requests in flight and takes no more; try again later",
            1,
        )
        assert admission.overload(None) is None


def test_body_that_arrives_slowly_no_longer_counts_as_in_flight() -> None:
    admission = admission_of(max_waiting=0)
    with arriving(admission, 40):
        assert admission.overload(None) is not None
        wait_until(lambda: admission.overload(None) is None)


def test_at_least_31_bodies_may_arrive_with_a_short_queue() -> None:
    admission = admission_of(max_waiting=0)
    with arriving(admission, 31):
        assert admission.overload(None) is None
        with admission.arriving():
            assert admission.overload(None) is not None


@pytest.mark.parametrize(("wait", "expected"), [(0, None), (0.5, 1)])
def test_admission_limits_the_wait_only_of_a_request_that_waits(wait: float, expected: float | None) -> None:
    admission_of(max_queue_seconds=1, wait=wait, workers=0).acquire(context := request_info(), "a")
    assert context.max_queue_seconds == expected


@pytest.mark.parametrize(
    ("info", "client_name"),
    [(request_info(address="10.0.0.1"), "your address"), (request_info("camera", "10.0.0.1"), "the key 'camera'")],
)
def test_client_over_its_limit_is_rejected(info: RequestContext, client_name: str) -> None:
    admission = admission_of(max_each_client=3)
    assert admitted_requests(admission, info=info) == 3
    with pytest.raises(InferenceError, match=f"has 3 requests or streams of {client_name} in flight") as caught:
        admission.acquire(info, "a")
    assert caught.value.kind is ErrorKind.OVERLOADED
    assert caught.value.retry_after == 1
    assert admission.in_flight == 3
    admission.release("a", info)
    assert admitted_requests(admission, info=info) == 1


def test_clients_are_counted_by_key_or_else_by_address() -> None:
    admission = admission_of(max_each_client=3)
    assert admitted_requests(admission, info=request_info("one", "10.0.0.1")) == 3
    assert admitted_requests(admission, info=request_info("two", "10.0.0.1")) == 3
    assert admitted_requests(admission, info=request_info("one", "10.0.0.2")) == 0
    assert admitted_requests(admission, info=request_info(address="10.0.0.1")) == 3


def test_unknown_client_and_client_without_limit_are_not_rejected() -> None:
    assert admitted_requests(admission_of(max_each_client=1, max_waiting=200), info=request_info()) == 110
    assert admitted_requests(admission_of(max_waiting=200), info=request_info("one")) == 110


def test_request_rejected_for_another_reason_does_not_count() -> None:
    admission, info = admission_of(max_each_client=5, max_waiting=1), request_info("one")
    assert admitted_requests(admission, info=info) == 3
    for _ in range(10):
        assert admitted_requests(admission, info=info) == 0
    admission.release("a", info)
    assert admitted_requests(admission, info=info) == 1
