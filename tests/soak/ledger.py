"""Record the result of every request, and grade it."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

ANSWERED = 200
SERVER = "(server)"
"""Model name of requests without a model, such as readiness."""


class Grade(StrEnum):
    """The grade of a result."""

    RIGHT = "right"
    REFUSED = "refused"
    """Failed with a status that a current fault explains."""
    DOWN = "down"
    """No answer, from a server that was stopped on purpose."""
    LOST = "lost"
    """No answer, and no fault that explains it."""
    UNEXPECTED = "unexpected"
    """An error status, and no fault that explains it."""
    WRONG = "wrong"
    """An answer that differs from the reference."""

    @property
    def failure(self) -> bool:
        """Return whether one such request fails the run."""
        return self in (Grade.LOST, Grade.UNEXPECTED, Grade.WRONG)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    Attributes:
        id: sent as its request id.
        surface: the protocol and its encoding.
        model: the requested model, or `SERVER`.
        started: when it was sent, in seconds of a monotonic clock, like all times here.
        ended: when its answer was complete, or timed out.
        status: as an HTTP status for all protocols; 0 for no answer.
        note: the error in an answer, or the message of an error status.
        rows: rows that the store must have once it is answered.
    """

    id: str
    surface: str
    model: str
    started: float
    ended: float
    status: int
    note: str = ""
    rows: int = 0


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """The time in which a fault explains failures.

    Attributes:
        kind: of the fault.
        started: when the fault was injected.
        ended: when the server had recovered from it.
        statuses: statuses that the fault explains.
        models: models whose requests may fail; None for all.
        unanswered: whether requests may get no answer.
        severed: whether this includes requests that were read before the fault.
        recovery: seconds from the end of the fault to the first correct answer; None if there was none.
        alone: whether no other fault ran at that time, which could delay the recovery.
    """

    kind: str
    started: float
    ended: float
    statuses: frozenset[int] = frozenset()
    models: frozenset[str] | None = None
    unanswered: bool = False
    severed: bool = False
    recovery: float | None = None
    alone: bool = True

    def meets(self, entry: Entry) -> bool:
        """Return whether the request overlaps the window."""
        return entry.started <= self.ended and entry.ended >= self.started

    def accounts_for(self, entry: Entry) -> bool:
        """Return whether the fault explains that the request failed."""
        if not self.meets(entry) or not (self.models is None or entry.model in self.models):
            return False
        if entry.status:
            return entry.status in self.statuses
        return self.unanswered and (self.severed or entry.started > self.started - _READ)


_READ = 0.25
"""Seconds until a sent request is read; a draining server answers every request that it has read."""


class Ledger:
    """Every request of a run.

    Attributes:
        entries: in the order of their ends.
        windows: in the order of their ends.
    """

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.windows: list[Window] = []

    def grade(self, entry: Entry) -> Grade:
        """Grade a request with the windows so far."""
        if entry.status == ANSWERED:
            return Grade.WRONG if entry.note else Grade.RIGHT
        if any(window.accounts_for(entry) for window in self.windows):
            return Grade.REFUSED if entry.status else Grade.DOWN
        return Grade.UNEXPECTED if entry.status else Grade.LOST

    def quiet(self, entry: Entry) -> bool:
        """Return whether no fault overlapped the request."""
        return not any(window.meets(entry) for window in self.windows)

    def acknowledged(self) -> Mapping[str, int]:
        """Return the rows that the store must have, by the id of each answered request."""
        return {entry.id: entry.rows for entry in self.entries if entry.rows and entry.status == ANSWERED}
