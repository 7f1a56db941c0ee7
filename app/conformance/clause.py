"""What a protocol asks of an engine, one clause at a time, and what was found."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from app.conformance.probe import Exchange, Probe

__all__ = ("Clause", "FaultError", "Finding", "InapplicableError", "Level", "Need", "UntestedError", "Verdict")


class Level(StrEnum):
    """How binding a clause is: only a MUST decides the exit code."""

    MUST = "MUST"
    SHOULD = "SHOULD"


class Need(StrEnum):
    """Who cannot go on without a clause: three features of Chariot, or the sender."""

    STORAGE = "storage"
    DRIFT = "drift"
    EVALUATION = "evaluation"
    CLIENTS = "clients"


class Verdict(StrEnum):
    """What was found of a clause."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_TESTED = "not tested"
    NOT_APPLICABLE = "not applicable"


class FaultError(Exception):
    """Raised by a check: the engine breaks the clause. The message says what was expected and what came."""


class UntestedError(Exception):
    """Raised by a check: this engine, or what its model found, does not let the clause be judged."""


class InapplicableError(Exception):
    """Raised by a check: the clause is not about engines such as this one. The message says which it is about."""


@dataclass(frozen=True, slots=True)
class Clause:
    """One thing that a protocol asks of an engine.

    Args:
        id: as reports name it.
        level: how binding it is.
        sentence: what is asked, in one sentence.
        source: where it comes from: a page and its section, or the public engine that behaves so.
        check: asks the engine; returns where the clause is kept, and raises `FaultError`, `UntestedError` or
            `InapplicableError` elsewhere.
        needed_for: who reads what the clause is about.
        requires: ids of clauses without which this one means nothing; where one of them fails, this one is not tested.
    """

    id: str
    level: Level
    sentence: str
    source: str
    check: Callable[[Probe], None]
    needed_for: Sequence[Need] = (Need.CLIENTS,)
    requires: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was found of one clause, with the exchanges that show it, the deciding one last."""

    clause: Clause
    verdict: Verdict
    reason: str
    exchanges: Sequence[Exchange]
