"""Rate limits of clients."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.engine.scheduling.token_bucket import Rate
from app.core.server.auth.credentials import AccessError, Identity
from app.core.server.auth.rate_limiter import LogSampler, RateLimiter
from tasks.inference.error import ErrorKind


def identity_of(name: str = "a", rate: Rate | None = None) -> Identity:
    return Identity(name=name, permissions=frozenset({"infer"}), rate=rate)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def accepted_requests(rates: RateLimiter, identity: Identity, times: int) -> int:
    accepted = 0
    for _ in range(times):
        try:
            rates.consume(identity)
        except AccessError:
            continue
        accepted += 1
    return accepted


def test_requests_without_a_rate_are_unlimited() -> None:
    assert accepted_requests(RateLimiter(clock=Clock()), identity_of(), 1000) == 1000


def test_burst_is_accepted_at_once_and_refills_at_the_rate() -> None:
    clock = Clock()
    rates = RateLimiter(Rate(per_second=2, burst=3), clock=clock)
    assert accepted_requests(rates, identity_of(), 10) == 3
    clock.now = 0.4
    assert accepted_requests(rates, identity_of(), 10) == 0
    clock.now = 0.5
    assert accepted_requests(rates, identity_of(), 10) == 1
    clock.now = 1000.0
    assert accepted_requests(rates, identity_of(), 10) == 3


def test_rejection_has_the_retry_delay() -> None:
    clock = Clock()
    rates = RateLimiter(clock=clock)
    slow = identity_of("slow", Rate(per_second=0.1, burst=1))
    rates.consume(slow)
    clock.now = 2.5
    with pytest.raises(AccessError) as caught:
        rates.consume(slow)
    assert (caught.value.kind, caught.value.reason, caught.value.retry_after) == (ErrorKind.OVERLOADED, "rate", 8)
    assert caught.value.message == "Expected at most 0.1 requests a second from slow, got more"
    clock.now += 8
    rates.consume(slow)


def test_retry_delay_of_a_tiny_rate_is_a_day() -> None:
    rates, identity = RateLimiter(Rate(per_second=1e-320, burst=1), clock=Clock()), identity_of()
    rates.consume(identity)
    with pytest.raises(AccessError) as caught:
        rates.consume(identity)
    assert caught.value.retry_after == 86_400


def test_rates_of_the_longest_idle_client_are_forgotten_at_the_limit() -> None:
    rates = RateLimiter(Rate(per_second=1, burst=1), max_buckets=2, clock=Clock())
    for name in ("a", "b"):
        assert accepted_requests(rates, identity_of(name), 2) == 1
    assert accepted_requests(rates, identity_of("a"), 1) == 0
    # b has been idle for longest, so its state is dropped.
    assert accepted_requests(rates, identity_of("c"), 1) == 1
    assert accepted_requests(rates, identity_of("a"), 1) == 0
    assert accepted_requests(rates, identity_of("b"), 1) == 1


@given(st.lists(st.floats(0, 3), max_size=60), st.floats(0.1, 20), st.integers(1, 10))
def test_accepted_requests_never_exceed_burst_and_refill(pauses: list[float], per_second: float, burst: int) -> None:
    clock = Clock()
    rates = RateLimiter(Rate(per_second=per_second, burst=burst), clock=clock)
    count = 0
    for pause in pauses:
        clock.now += pause
        count += accepted_requests(rates, identity_of(), 1)
    assert count <= burst + clock.now * per_second + 1e-6


def test_sampler_passes_ten_lines_and_counts_the_dropped_ones() -> None:
    now = [0.0]
    sampler = LogSampler(lambda: now[0])
    assert [sampler.sample() for _ in range(13)] == [{}] * 10 + [None] * 3
    now[0] = 1.0
    assert [sampler.sample() for _ in range(2)] == [{"not_logged": 3}, None]
