"""Timeouts of the phases of a connection, with a fake clock."""

from collections.abc import Callable

import pytest

from app.core.server.transport.timeouts import ConnectionTimeouts
from app.core.settings.network import TransportSettings

SETTINGS = TransportSettings(
    header_timeout=10, body_timeout=30, write_timeout=20, keep_alive_timeout=75, lowest_rate=100
)


def end_of_phase(
    phase_name: str, bytes_moved: Callable[[float], int] = lambda _: 0, settings: TransportSettings = SETTINGS
) -> float:
    """Return the second at which a connection in this phase ends, at most 10,000."""
    phase = ConnectionTimeouts(settings)
    for now in range(10_000):
        late = phase.expired_phase(float(now), phase_name, 1, lambda _, now=now: bytes_moved(now))
        if late is not None:
            assert late == phase_name
            return now
    return 10_000


@pytest.mark.parametrize(
    ("phase_name", "seconds"),
    [
        ("silent", 75),
        ("headers", 10),
        ("body", 30),
        ("unread", 30),
        ("answer", 20),
        ("idle", 75),
        ("lingering", 2),
        ("closing", 1),
    ],
)
def test_every_phase_has_a_timeout(phase_name: str, seconds: float) -> None:
    assert end_of_phase(phase_name) == seconds


def test_time_while_the_server_works_has_no_timeout() -> None:
    assert end_of_phase("") == 10_000


@pytest.mark.parametrize(("phase_name", "window"), [("body", 30), ("unread", 30), ("answer", 20)])
def test_connection_below_the_minimum_rate_ends(phase_name: str, window: int) -> None:
    assert end_of_phase(phase_name, lambda now: round(100 * now)) == 10_000
    assert end_of_phase(phase_name, lambda now: round(99 * now)) == window


def test_earlier_bytes_do_not_count_for_the_next_window() -> None:
    assert end_of_phase("body", lambda now: 50_000_000 if now >= 1 else 0) == 60


def test_one_byte_in_a_window_is_enough_without_a_minimum_rate() -> None:
    settings = TransportSettings(lowest_rate=0, body_timeout=30)
    assert end_of_phase("body", lambda now: int(now // 29), settings) == 10_000
    assert end_of_phase("body", lambda _: 5, settings) == 30


def test_new_phase_or_request_restarts_the_timeout() -> None:
    phase = ConnectionTimeouts(SETTINGS)

    def late(now: float, phase_name: str, messages: int) -> str | None:
        return phase.expired_phase(now, phase_name, messages, lambda _: 0)

    assert late(0, "headers", 1) is None
    assert late(9, "headers", 2) is None
    assert late(18, "headers", 2) is None
    assert late(18.5, "", 2) is None
    assert late(19, "headers", 2) is None
    assert late(28, "headers", 2) is None
    assert late(29, "headers", 2) == "headers"
