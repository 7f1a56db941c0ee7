"""How often callers may ask."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.server.access.identity import AccessError, Identity, Rate
from app.server.access.rates import Rates
from tasks.exchange.error import ErrorKind


def somebody(name: str = "a", rate: Rate | None = None) -> Identity:
    return Identity(name=name, permissions=frozenset({"infer"}), rate=rate)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def taken(rates: Rates, identity: Identity, times: int) -> int:
    found = 0
    for _ in range(times):
        try:
            rates.charge(identity)
        except AccessError:
            continue
        found += 1
    return found


def test_without_a_rate_nobody_is_counted() -> None:
    assert taken(Rates(clock=Clock()), somebody(), 1000) == 1000


def test_a_burst_comes_at_once_and_the_rest_in_time() -> None:
    clock = Clock()
    rates = Rates(Rate(per_second=2, burst=3), clock=clock)
    assert taken(rates, somebody(), 10) == 3
    clock.now = 0.4
    assert taken(rates, somebody(), 10) == 0
    clock.now = 0.5
    assert taken(rates, somebody(), 10) == 1
    clock.now = 1000.0
    assert taken(rates, somebody(), 10) == 3


def test_the_refusal_says_when_to_come_back() -> None:
    clock = Clock()
    rates = Rates(clock=clock)
    slow = somebody("slow", Rate(per_second=0.1, burst=1))
    rates.charge(slow)
    clock.now = 2.5
    with pytest.raises(AccessError) as caught:
        rates.charge(slow)
    assert (caught.value.kind, caught.value.reason, caught.value.retry_after) == (ErrorKind.OVERLOADED, "rate", 8)
    assert caught.value.message == "Expected at most 0.1 requests a second from slow, got more"
    clock.now += 8
    rates.charge(slow)


def test_ones_own_rate_goes_before_everybodys_and_takes_nothing_from_others() -> None:
    rates = Rates(Rate(per_second=1, burst=1), clock=Clock())
    assert taken(rates, somebody("a", Rate(per_second=1, burst=5)), 10) == 5
    assert taken(rates, somebody("b"), 10) == 1
    assert taken(rates, somebody("c"), 10) == 1


def test_only_so_many_are_remembered() -> None:
    rates = Rates(Rate(per_second=1, burst=1), remembered=2, clock=Clock())
    for name in ("a", "b"):
        assert taken(rates, somebody(name), 2) == 1
    assert taken(rates, somebody("a"), 1) == 0
    # Nobody has been silent for longer than b.
    assert taken(rates, somebody("c"), 1) == 1
    assert taken(rates, somebody("a"), 1) == 0
    assert taken(rates, somebody("b"), 1) == 1


@given(st.lists(st.floats(0, 3), max_size=60), st.floats(0.1, 20), st.integers(1, 10))
def test_never_more_than_the_burst_and_what_time_brought(pauses: list[float], per_second: float, burst: int) -> None:
    clock = Clock()
    rates = Rates(Rate(per_second=per_second, burst=burst), clock=clock)
    count = 0
    for pause in pauses:
        clock.now += pause
        count += taken(rates, somebody(), 1)
    assert count <= burst + clock.now * per_second + 1e-6
