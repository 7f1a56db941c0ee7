"""Run the checks of a protocol against an engine, one after the other."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import httpx

from app.plugins.conformance.chariot.image_probe import task_type_of
from app.plugins.conformance.check import Check, Finding, Level, Need, NotApplicableError, Protocol, Verdict
from app.plugins.conformance.exchange import InconclusiveError, ViolationError
from app.plugins.conformance.probe import Probe, RequestLimitError, Target

_MAX_EXCHANGES = 3
"""The number of exchanges to keep for a finding; the last ones decided it."""
_NO_CREDENTIALS = "Every request is refused for missing credentials; give them with --header-file"
_UNAUTHORIZED = "The credentials are refused, not the content; give valid ones with --header-file"


class UnreachableError(Exception):
    """The engine's URL does not answer, or refuses every request for its credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceReport:
    """The findings for one engine."""

    protocol: Protocol
    target: Target
    task_type: str | None
    """The given task type, or the one detected from items; None if the protocol has no items or they do not show it."""
    findings: Sequence[Finding]
    requests: int

    def count(self, verdict: Verdict, level: Level | None = None) -> int:
        """Count the findings with a verdict, of one level or of both."""
        return sum(finding.verdict is verdict and level in (None, finding.check.level) for finding in self.findings)

    @property
    def conforms(self) -> bool:
        """Return whether no MUST failed."""
        return not self.count(Verdict.FAILED, Level.MUST)

    @property
    def inapplicable_reason(self) -> str:
        """Return why no check is for the model; empty if one is."""
        is_applicable = any(finding.verdict is not Verdict.NOT_APPLICABLE for finding in self.findings)
        return "" if is_applicable else self.findings[0].reason

    @property
    def unauthorized(self) -> Sequence[str]:
        """Return the ids of MUST checks that were not tested because the engine refused the credentials."""
        return [
            finding.check.id
            for finding in self.findings
            if finding.verdict is Verdict.NOT_TESTED and finding.check.level is Level.MUST
            if finding.exchanges and finding.exchanges[-1].unauthorized
        ]

    def musts(self, verdict: Verdict, need: Need) -> Sequence[str]:
        """Return the ids of the MUST checks with a verdict that `need` depends on."""
        checks = [finding.check for finding in self.findings if finding.verdict is verdict]
        return [check.id for check in checks if check.level is Level.MUST and need in check.needed_for]


class CheckRunner:
    """Run the checks of a protocol against an engine, each on first use, and after those that it requires."""

    def __init__(self, protocol: Protocol, probe: Probe) -> None:
        self.protocol = protocol
        self.probe = probe
        if protocol.images:
            probe.images = protocol.images
        self._checks = {check.id: check for check in protocol.checks}
        self._findings: dict[str, Finding] = {}
        self._inapplicable_reason: str | None = None
        self._root_failures: dict[str, str] = {}
        """The failed check at the root, by the id of each check that failed or requires it."""

    def check_reachable(self) -> None:
        """Send one request, to see whether the engine answers. Raise UnreachableError if the engine does not answer."""
        try:
            if self.probe.transport:
                self.probe.transport.wait_connected()
            else:
                self.probe.get("/")
        except (httpx.TransportError, httpx.InvalidURL) as error:
            raise UnreachableError(f"{self.probe.target.url}: {error or type(error).__name__}") from None
        except httpx.HTTPError:
            pass  # The engine answers, and the checks report what is wrong with the response.

    def finding(self, check: Check) -> Finding:
        """Return the finding of a check. Run it once, after the checks that it requires."""
        if check.id not in self._findings:
            for required in check.requires:
                self.finding(self._checks[required])
            self._findings[check.id] = self._run_unless_blocked(check)
        return self._findings[check.id]

    def report(self, on_check: Callable[[Check], None] | None = None) -> ConformanceReport:
        """Run every check and return the report; call `on_check` before each check.

        Raise UnreachableError if the engine refused the credentials of every request, so nothing was tested.
        """
        for check in self.protocol.checks:
            if on_check:
                on_check(check)
            self.finding(check)
        if self.probe.unauthorized:
            raise UnreachableError(f"{self.probe.target.url}: {_NO_CREDENTIALS}")
        return ConformanceReport(
            protocol=self.protocol,
            target=self.probe.target,
            task_type=self._task_type(),
            findings=[self._findings[check.id] for check in self.protocol.checks],
            requests=self.probe.request_count,
        )

    def _task_type(self) -> str | None:
        if not self.protocol.images or self._inapplicable_reason:
            return self.probe.target.task_type
        try:
            return task_type_of(self.probe)
        except (InconclusiveError, RequestLimitError, ViolationError, httpx.HTTPError):
            return None

    def _why_inapplicable(self) -> str:
        """Return why the protocol's checks are not for the model; empty if they are."""
        if self._inapplicable_reason is None:
            self._inapplicable_reason = ""
            with suppress(RequestLimitError):
                try:
                    self.protocol.check_model(self.probe)
                except NotApplicableError as error:
                    self._inapplicable_reason = str(error)
        return self._inapplicable_reason

    def _run_unless_blocked(self, check: Check) -> Finding:
        if reason := self._why_inapplicable():
            return Finding(check, Verdict.NOT_APPLICABLE, reason)
        if roots := [self._root_failures[required] for required in check.requires if required in self._root_failures]:
            self._root_failures[check.id] = roots[0]
            return Finding(check, Verdict.NOT_TESTED, f"{roots[0]} failed")
        finding = _run(check, self.probe)
        if finding.verdict is Verdict.FAILED:
            self._root_failures[check.id] = check.id
        return finding


def _run(check: Check, probe: Probe) -> Finding:
    probe.exchanges.clear()
    verdict, reason = Verdict.PASSED, ""
    try:
        check.run(probe)
    except (InconclusiveError, RequestLimitError) as error:
        verdict, reason = Verdict.NOT_TESTED, str(error)
    except NotApplicableError as error:
        verdict, reason = Verdict.NOT_APPLICABLE, str(error)
    except ViolationError as error:
        verdict, reason = Verdict.FAILED, str(error)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # A path can have a version that the engine names.
        verdict, reason = Verdict.FAILED, f"No answer: {error or type(error).__name__}"
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # An unforeseen response must not stop the other checks.
        verdict, reason = Verdict.NOT_TESTED, f"The answer could not be judged: {error!r}"
    if verdict is not Verdict.NOT_APPLICABLE and probe.exchanges and probe.exchanges[-1].unauthorized:
        # A failure stays one, so that an expired key cannot pass.
        reason = f"{reason}. {_UNAUTHORIZED}" if verdict is Verdict.FAILED else _UNAUTHORIZED
        verdict = verdict if verdict is Verdict.FAILED else Verdict.NOT_TESTED
    return Finding(check, verdict, reason, tuple(probe.exchanges[-_MAX_EXCHANGES:]))
