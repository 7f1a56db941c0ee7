"""Define protocols with their checks, and findings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from app.plugins.conformance.exchange import Exchange, ViolationError, quote
from app.plugins.conformance.probe import ImageFormat, Probe


class Level(StrEnum):
    """The level of a check: only a MUST changes the exit code."""

    MUST = "MUST"
    SHOULD = "SHOULD"


MUST, SHOULD = Level.MUST, Level.SHOULD


class Need(StrEnum):
    """What depends on a check: three features of Chariot, or clients."""

    STORAGE = "storage"
    DRIFT = "drift"
    EVALUATION = "evaluation"
    CLIENTS = "clients"


STORED, EVALUATED, PARSED = (Need.STORAGE,), (Need.EVALUATION,), (Need.STORAGE, Need.EVALUATION)
EVERYTHING = tuple(Need)


class CheckVerdict(StrEnum):
    """The result of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_TESTED = "not tested"
    NOT_APPLICABLE = "not applicable"


class NotApplicableError(Exception):
    """Raised by a check: the check is for other engines. The message says which."""


def expect(holds: object, expected: str, got: object, where: str = "") -> None:
    """Raise a `ViolationError` with the expected and the actual value, after `where`, unless `holds` is true."""
    if not holds:
        raise ViolationError(f"{where and f'{where}: '}Expected {expected}, got {quote(got)}")


def expect_same(got: object, expected: object, description: str = "", where: str = "") -> None:
    """Raise a `ViolationError` like `expect` unless both are equal; `description` is of the expected value."""
    expect(got == expected, description or quote(expected), got, where)


@dataclass(frozen=True, slots=True)
class Check:
    """One requirement of a protocol.

    Args:
        sentence: the requirement.
        source: a page and its section, or a public engine that behaves this way.
        run: sends requests; returns anything if the engine meets the requirement, else raises `ViolationError`,
            `InconclusiveError` or `NotApplicableError`.
        needed_for: what depends on the check.
        requires: ids of checks that this one builds on; if one of them fails, this one is not tested.
    """

    id: str
    level: Level
    sentence: str
    source: str
    run: Callable[[Probe], object]
    needed_for: Sequence[Need] = (Need.CLIENTS,)
    requires: Sequence[str] = ()


def renamed(check: Check, prefix: str) -> Check:
    """Return a check that several protocols share, with the prefix of one for its ids."""
    requires = [f"{prefix}-{required}" for required in check.requires]
    return replace(check, id=f"{prefix}-{check.id}", requires=requires)


@dataclass(frozen=True, slots=True)
class Protocol:
    """A protocol with its checks.

    Args:
        name: the value of `--protocol`.
        checks: each after those that it requires.
        images: the format of images; None if the protocol has no items.
        rpc: whether the protocol uses gRPC.
        check_model: raises `NotApplicableError` if the protocol's checks are not for the engine's model.
    """

    name: str
    checks: Sequence[Check]
    images: ImageFormat | None = None
    rpc: bool = False
    check_model: Callable[[Probe], object] = lambda _: None

    @property
    def needs(self) -> Sequence[Need]:
        """Return the features that depend on at least one check."""
        return [need for need in Need if any(need in check.needed_for for check in self.checks)]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check, with the exchanges that prove it, the deciding one last."""

    check: Check
    verdict: CheckVerdict
    reason: str
    exchanges: Sequence[Exchange] = ()
