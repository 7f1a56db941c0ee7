"""Run the checks of a protocol against an engine, one after the other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import httpx

from app.conformance.clause import Clause, FaultError, Finding, InapplicableError, Level, Need, UntestedError, Verdict
from app.conformance.probe import BudgetSpentError, LateError, NotJsonError, Probe, Target
from app.conformance.protocols import Protocol

__all__ = ("Holding", "Report", "UnreachableError", "held_against")

_MAX_EXCHANGES = 3
"""The number of exchanges to keep for a finding; the last ones decided it."""
_KEYLESS = "Every request is refused for missing credentials; give them with --header-file"
_BARRED = "The credentials are refused, not the content; give valid ones with --header-file"


class UnreachableError(Exception):
    """The engine's URL does not answer, or refuses every request for its credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The findings for one engine."""

    protocol: str
    target: Target
    task_type: str | None
    """The given task type, or the one detected from items; None if the protocol has no items or they do not show it."""
    findings: Sequence[Finding]
    requests: int

    def counted(self, verdict: Verdict, level: Level | None = None) -> int:
        """Count the findings with a verdict, of one level or of both."""
        return sum(finding.verdict is verdict and level in (None, finding.clause.level) for finding in self.findings)

    @property
    def needs(self) -> Sequence[Need]:
        """Return the needs that the protocol's clauses name."""
        named = {need for finding in self.findings for need in finding.clause.needed_for}
        return [need for need in Need if need in named]

    @property
    def conforms(self) -> bool:
        """Return whether no MUST failed."""
        return not self.counted(Verdict.FAILED, Level.MUST)

    @property
    def barred(self) -> Sequence[str]:
        """Return the ids of MUST clauses that were not tested because the engine refused the credentials."""
        return [
            finding.clause.id
            for finding in self.findings
            if finding.verdict is Verdict.NOT_TESTED
            and finding.clause.level is Level.MUST
            and finding.exchanges
            and finding.exchanges[-1].barred
        ]

    def failing(self, need: Need) -> Sequence[str]:
        """Return the ids of the failed MUST clauses that `need` depends on."""
        return [
            finding.clause.id
            for finding in self.findings
            if finding.verdict is Verdict.FAILED
            and finding.clause.level is Level.MUST
            and need in finding.clause.needed_for
        ]

    def untested(self, need: Need) -> Sequence[str]:
        """Return the ids of the untested MUST clauses that `need` depends on."""
        return [
            finding.clause.id
            for finding in self.findings
            if finding.verdict is Verdict.NOT_TESTED
            and finding.clause.level is Level.MUST
            and need in finding.clause.needed_for
        ]


class Holding:
    """Check an engine against a protocol, each clause on first use.

    Args:
        protocol: its clauses come after those that they require.
        probe: sends the requests.
    """

    def __init__(self, protocol: Protocol, probe: Probe) -> None:
        self.protocol = protocol
        self.probe = probe
        self._clauses = {clause.id: clause for clause in protocol.clauses}
        self._findings: dict[str, Finding] = {}
        self._broken: dict[str, str] = {}

    def reach(self) -> None:
        """Send one request, to see whether the engine answers.

        Raises:
            UnreachableError: the engine does not answer.
        """
        try:
            if self.probe.caller:
                self.probe.caller.reach()
            else:
                self.probe.get("/")
        except (LateError, httpx.TransportError, httpx.InvalidURL) as error:
            raise UnreachableError(f"{self.probe.target.url}: {error or type(error).__name__}") from None
        except httpx.HTTPError:
            pass  # The engine answers, and the checks report what is wrong with the response.

    def finding(self, clause: Clause) -> Finding:
        """Return the finding for one clause. Check it once, after the clauses that it requires."""
        if clause.id not in self._findings:
            for required in clause.requires:
                self.finding(self._clauses[required])
            self._findings[clause.id] = self._check(clause)
        return self._findings[clause.id]

    def report(self, told: Callable[[Clause], None] | None = None) -> Report:
        """Check every clause and return the report; call `told` with each clause before its check.

        Raises:
            UnreachableError: the engine refused the credentials of every request, so nothing was tested.
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
            findings=[self._findings[checked.id] for checked in self.protocol.clauses],
            requests=self.probe.sent,
        )

    def _check(self, clause: Clause) -> Finding:
        if roots := [self._broken[required] for required in clause.requires if required in self._broken]:
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
        protocol: its clauses come after those that they require.
        probe: sends the requests.
        told: called with each clause before its check.

    Raises:
        UnreachableError: the engine does not answer, or refuses the credentials of every request.
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
        # An unforeseen response must not stop the other checks.
        verdict, reason = Verdict.NOT_TESTED, f"The answer could not be judged: {error!r}"
    if verdict is not Verdict.NOT_APPLICABLE and probe.exchanges and probe.exchanges[-1].barred:
        verdict, reason = _barred(verdict, reason)
    return Finding(clause=clause, verdict=verdict, reason=reason, exchanges=tuple(probe.exchanges[-_MAX_EXCHANGES:]))


def _barred(verdict: Verdict, reason: str) -> tuple[Verdict, str]:
    """Keep a failure, so that an expired key cannot pass; make other verdicts not tested."""
    return (verdict, f"{reason}. {_BARRED}") if verdict is Verdict.FAILED else (Verdict.NOT_TESTED, _BARRED)


def _task_type(protocol: Protocol, probe: Probe) -> str | None:
    if probe.target.task_type or protocol.task_type is None:
        return probe.target.task_type
    try:
        return protocol.task_type(probe)
    except (UntestedError, BudgetSpentError, LateError, NotJsonError, httpx.HTTPError):
        return None
