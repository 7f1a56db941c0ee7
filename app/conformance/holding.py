"""Holding an engine against the clauses of a protocol, one after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx

from app.conformance.clause import Clause, FaultError, Finding, InapplicableError, Level, Need, UntestedError, Verdict
from app.conformance.probe import BudgetSpentError, LateError, NotJsonError, Probe, Target
from app.conformance.protocols import Protocol

__all__ = ("Holding", "Report", "UnreachableError", "held_against")

_MOST_EXCHANGES = 3
"""As many exchanges are kept for a finding: the last ones, which decided it."""
_KEYLESS = "Every request is refused for who sends it; give what the engine's gate asks for with --header-file"
_BARRED = "Who sends this is refused, not what is sent; give what the engine's gate asks for with --header-file"


class UnreachableError(Exception):
    """Nothing answers at the engine's URL, or only what refuses whoever asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What was found of one engine."""

    protocol: str
    target: Target
    task_type: str | None
    """As it was given, or as it was found from the items; none where the protocol has no items, or they say nothing."""
    findings: Sequence[Finding]
    requests: int

    def counted(self, verdict: Verdict, level: Level | None = None) -> int:
        """How many findings have a verdict, of one level or of both."""
        return sum(each.verdict is verdict and level in (None, each.clause.level) for each in self.findings)

    @property
    def needs(self) -> Sequence[Need]:
        """Whom the protocol's clauses speak of."""
        named = {need for each in self.findings for need in each.clause.needed_for}
        return [need for need in Need if need in named]

    @property
    def conforms(self) -> bool:
        """Whether no MUST failed."""
        return not self.counted(Verdict.FAILED, Level.MUST)

    @property
    def barred(self) -> Sequence[str]:
        """The ids of the clauses that bind, and of which nothing is known because of who asked."""
        return [
            each.clause.id
            for each in self.findings
            if each.verdict is Verdict.NOT_TESTED
            and each.clause.level is Level.MUST
            and each.exchanges
            and each.exchanges[-1].barred
        ]

    def failing(self, need: Need) -> Sequence[str]:
        """The ids of the failed clauses that `need` cannot do without."""
        return [
            each.clause.id
            for each in self.findings
            if each.verdict is Verdict.FAILED and each.clause.level is Level.MUST and need in each.clause.needed_for
        ]

    def untested(self, need: Need) -> Sequence[str]:
        """The ids of the clauses that `need` cannot do without, and of which nothing is known."""
        return [
            each.clause.id
            for each in self.findings
            if each.verdict is Verdict.NOT_TESTED and each.clause.level is Level.MUST and need in each.clause.needed_for
        ]


class Holding:
    """An engine that is held against a protocol, each clause when it is asked for.

    Args:
        protocol: with its clauses, those first that others require.
        probe: asks the engine.
    """

    def __init__(self, protocol: Protocol, probe: Probe) -> None:
        self.protocol = protocol
        self.probe = probe
        self._clauses = {each.id: each for each in protocol.clauses}
        self._findings: dict[str, Finding] = {}
        self._broken: dict[str, str] = {}

    def reach(self) -> None:
        """See whether anything answers.

        Raises:
            UnreachableError: the engine does not answer at all.
        """
        try:
            if self.probe.caller:
                self.probe.caller.reach()
            else:
                self.probe.get("/")
        except (LateError, httpx.TransportError, httpx.InvalidURL) as error:
            raise UnreachableError(f"{self.probe.target.url}: {error or type(error).__name__}") from None
        except httpx.HTTPError:
            pass  # Something answers, if strangely; the clauses will say how.

    def finding(self, clause: Clause) -> Finding:
        """What is found of one clause, once; those that it requires are looked at before it."""
        if clause.id not in self._findings:
            for each in clause.requires:
                self.finding(self._clauses[each])
            self._findings[clause.id] = self._look(clause)
        return self._findings[clause.id]

    def report(self, told: Callable[[Clause], None] | None = None) -> Report:
        """What is found of every clause; `told` hears of each before it is looked at.

        Raises:
            UnreachableError: every request was refused for who asks, so that nothing is known of the engine.
        """
        for clause in self.protocol.clauses:
            if told:
                told(clause)
            self.finding(clause)
        if self.probe.barred:
            raise UnreachableError(f"{self.probe.target.url}: {_KEYLESS}")
        return Report(
            protocol=self.protocol.name,
            target=self.probe.target,
            task_type=_task_type(self.protocol, self.probe),
            findings=[self._findings[each.id] for each in self.protocol.clauses],
            requests=self.probe.sent,
        )

    def _look(self, clause: Clause) -> Finding:
        if roots := [self._broken[each] for each in clause.requires if each in self._broken]:
            self._broken[clause.id] = roots[0]
            reason = f"{roots[0]} failed"
            return Finding(clause=clause, verdict=Verdict.NOT_TESTED, reason=reason, exchanges=())
        found = _found(clause, self.probe)
        if found.verdict is Verdict.FAILED:
            self._broken[clause.id] = clause.id
        return found


def held_against(protocol: Protocol, probe: Probe, told: Callable[[Clause], None] | None = None) -> Report:
    """Check every clause of `protocol`.

    Args:
        protocol: with its clauses, those first that others require.
        probe: asks the engine.
        told: hears of each clause before it is checked.

    Raises:
        UnreachableError: the engine does not answer at all, or refuses whoever asks.
    """
    holding = Holding(protocol, probe)
    holding.reach()
    return holding.report(told)


def _found(clause: Clause, probe: Probe) -> Finding:
    probe.exchanges.clear()
    verdict, reason = Verdict.PASSED, ""
    try:
        clause.check(probe)
    except (UntestedError, BudgetSpentError) as error:
        verdict, reason = Verdict.NOT_TESTED, str(error)
    except InapplicableError as error:
        verdict, reason = Verdict.NOT_APPLICABLE, str(error)
    except (FaultError, NotJsonError) as error:
        verdict, reason = Verdict.FAILED, str(error)
    except (LateError, httpx.HTTPError) as error:
        verdict, reason = Verdict.FAILED, f"No answer: {error or type(error).__name__}"
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # Nobody foresees every answer: one that cannot be judged must not keep the other clauses from being.
        verdict, reason = Verdict.NOT_TESTED, f"The answer could not be judged: {error!r}"
    if verdict is not Verdict.NOT_APPLICABLE and probe.exchanges and probe.exchanges[-1].barred:
        verdict, reason = _barred(verdict, reason)
    return Finding(clause=clause, verdict=verdict, reason=reason, exchanges=tuple(probe.exchanges[-_MOST_EXCHANGES:]))


def _barred(verdict: Verdict, reason: str) -> tuple[Verdict, str]:
    """What failed stays so, or a run with a key that is over would pass; what expects a refusal has not seen one."""
    return (verdict, f"{reason}. {_BARRED}") if verdict is Verdict.FAILED else (Verdict.NOT_TESTED, _BARRED)


def _task_type(protocol: Protocol, probe: Probe) -> str | None:
    if probe.target.task_type or protocol.task_type is None:
        return probe.target.task_type
    try:
        return protocol.task_type(probe)
    except (UntestedError, BudgetSpentError, LateError, NotJsonError, httpx.HTTPError):
        return None
