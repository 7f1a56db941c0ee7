"""How long a connection may stay in each phase, by a clock of the test's own."""

from collections.abc import Callable

import pytest

from app.server.phase import Phase
from app.settings.transport import TransportSettings

SETTINGS = TransportSettings(
    header_timeout=10, body_timeout=30, write_timeout=20, keep_alive_timeout=75, lowest_rate=100
)


def ends(where: str, moved: Callable[[float], int] = lambda _: 0, settings: TransportSettings = SETTINGS) -> float:
    """The second at which a connection that stays in a phase ends, of ten thousand."""
    phase = Phase(settings)
    for now in range(10_000):
        late = phase.late(float(now), where, 1, lambda _, now=now: moved(now))
        if late is not None:
            assert late == where
            return now
    return 10_000


@pytest.mark.parametrize(
    ("where", "seconds"),
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
def test_every_phase_ends(where: str, seconds: float) -> None:
    assert ends(where) == seconds


def test_the_servers_own_turn_has_no_end() -> None:
    assert ends("") == 10_000


@pytest.mark.parametrize(("where", "window"), [("body", 30), ("unread", 30), ("answer", 20)])
def test_bytes_have_to_come_at_the_lowest_rate(where: str, window: int) -> None:
    assert ends(where, lambda now: round(100 * now)) == 10_000
    assert ends(where, lambda now: round(99 * now)) == window


def test_what_came_before_does_not_count_for_later() -> None:
    assert ends("body", lambda now: 50_000_000 if now >= 1 else 0) == 60


def test_without_a_lowest_rate_a_byte_is_enough() -> None:
    anything = TransportSettings(lowest_rate=0, body_timeout=30)
    assert ends("body", lambda now: int(now // 29), anything) == 10_000
    assert ends("body", lambda _: 5, anything) == 30


def test_another_phase_or_another_request_begins_anew() -> None:
    phase = Phase(SETTINGS)

    def late(now: float, where: str, messages: int) -> str | None:
        return phase.late(now, where, messages, lambda _: 0)

    assert late(0, "headers", 1) is None
    assert late(9, "headers", 2) is None
    assert late(18, "headers", 2) is None
    assert late(18.5, "", 2) is None
    assert late(19, "headers", 2) is None
    assert late(28, "headers", 2) is None
    assert late(29, "headers", 2) == "headers"
