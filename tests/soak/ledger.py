"""What became of every request, and whether that was right, honest or neither."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

__all__ = ("ANSWERED", "SERVER", "Entry", "Grade", "Ledger", "Window")

ANSWERED = 200
SERVER = "(server)"
"""Stands for the model of what is asked of no model, such as readiness."""


class Grade(StrEnum):
    """What a request came to."""

    RIGHT = "right"
    REFUSED = "refused"
    """With a status that the faults of that time account for."""
    DOWN = "down"
    """No answer, of a server that was down on purpose."""
    LOST = "lost"
    """No answer, and nothing that accounts for it."""
    UNEXPECTED = "unexpected"
    """A refusal, and nothing that accounts for it."""
    WRONG = "wrong"
    """An answer that is not that of the model that serves."""

    @property
    def failure(self) -> bool:
        """Whether a run that has one has failed."""
        return self in (Grade.LOST, Grade.UNEXPECTED, Grade.WRONG)


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    Attributes:
        id: sent as its request id.
        surface: the protocol, and the way of it.
        model: that was asked, or `SERVER`.
        began: when it was sent, in seconds of a monotonic clock, as all times here.
        ended: when its answer was complete, or was given up.
        status: in HTTP's numbers whatever the protocol; 0 for no answer.
        note: what is wrong with an answer; of a refusal, what it says.
        rows: that the store has of it once it is answered.
    """

    id: str
    surface: str
    model: str
    began: float
    ended: float
    status: int
    note: str = ""
    rows: int = 0


class Window(msgspec.Struct, frozen=True, kw_only=True):
    """A time in which a fault accounts for refusals.

    Attributes:
        kind: of the fault.
        began: when it was begun.
        ended: when the server had recovered from it.
        statuses: that are honest meanwhile.
        models: of whose requests; None for all of them.
        unanswered: whether requests may go without an answer.
        severed: whether that holds for requests, too, that were sent long enough before it to have been read.
        recovery: seconds from the end of its cause to the first right answer; None when it never came.
        alone: whether no other fault was caused at that time, which might have held the recovery up.
    """

    kind: str
    began: float
    ended: float
    statuses: frozenset[int] = frozenset()
    models: frozenset[str] | None = None
    unanswered: bool = False
    severed: bool = False
    recovery: float | None = None
    alone: bool = True

    def meets(self, entry: Entry) -> bool:
        """Whether any part of the request lies in it."""
        return entry.began <= self.ended and entry.ended >= self.began

    def accounts_for(self, entry: Entry) -> bool:
        """Whether it is why the request was not answered, or was refused."""
        if not self.meets(entry) or not (self.models is None or entry.model in self.models):
            return False
        if entry.status:
            return entry.status in self.statuses
        return self.unanswered and (self.severed or entry.began > self.began - _READ)


_READ = 0.25
"""Seconds after which a request that was sent has been read: what a server that drains has read, it answers."""


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
        """What the request came to, by the windows so far."""
        if entry.status == ANSWERED:
            return Grade.WRONG if entry.note else Grade.RIGHT
        if any(window.accounts_for(entry) for window in self.windows):
            return Grade.REFUSED if entry.status else Grade.DOWN
        return Grade.UNEXPECTED if entry.status else Grade.LOST

    def quiet(self, entry: Entry) -> bool:
        """Whether no fault was going on during the request."""
        return not any(window.meets(entry) for window in self.windows)

    def acknowledged(self) -> Mapping[str, int]:
        """The rows that the store has to have of every request that was answered, by its id."""
        return {entry.id: entry.rows for entry in self.entries if entry.rows and entry.status == ANSWERED}
