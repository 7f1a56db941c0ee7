"""Run the checks of a protocol against an engine, one after the other."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import httpx

from app.plugins.conformance.chariot.image_probe import task_type_of
from app.plugins.conformance.check import Check, CheckVerdict, Finding, Level, Need, NotApplicableError, Protocol
from app.plugins.conformance.exchange import InconclusiveError, ViolationError
from app.plugins.conformance.probe import Probe, RequestLimitError, Target

_MAX_EXCHANGES = 3
"""The number of exchanges to keep for a finding; the last ones decided it."""
_NO_CREDENTIALS = "Every request is rejected for missing credentials; give them with --header-file"
_UNAUTHORIZED = "The credentials are rejected, not the content; give valid ones with --header-file"


class UnreachableError(Exception):
    """The engine's URL does not answer, or rejects every request for its credentials."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceReport:
    """The findings for one engine."""

    protocol: Protocol
    target: Target
    task_type: str | None
    """The given task type, or the one detected from items; None if the protocol has no items or they do not show it."""
    findings: Sequence[Finding]
    requests: int

    def count(self, verdict: CheckVerdict, level: Level | None = None) -> int:
        """Count the findings with a verdict, of one level or of both."""
        return sum(finding.verdict is verdict and level in (None, finding.check.level) for finding in self.findings)

    @property
    def conforms(self) -> bool:
        """Return whether no MUST failed."""
        return not self.count(CheckVerdict.FAILED, Level.MUST)

    @property
    def inapplicable_reason(self) -> str:
        """Return why no check is for the model; empty if one is."""
        is_applicable = any(finding.verdict is not CheckVerdict.NOT_APPLICABLE for finding in self.findings)
        return "" if is_applicable else self.findings[0].reason

    @property
    def unauthorized(self) -> Sequence[str]:
        """Return the ids of MUST checks that were not tested because the engine rejected the credentials."""
        return [
            finding.check.id
            for finding in self.findings
            if finding.verdict is CheckVerdict.NOT_TESTED and finding.check.level is Level.MUST
            if finding.exchanges and finding.exchanges[-1].unauthorized
        ]

    def musts(self, verdict: CheckVerdict, need: Need) -> Sequence[str]:
        """Return the ids of the MUST checks with a verdict that `need` depends on."""
        checks = [finding.check for finding in self.findings if finding.verdict is verdict]
        return [check.id for check in checks if check.level is Level.MUST and need in check.needed_for]


class CheckRunner:
    """Run the checks of a protocol against an engine, in their order: each comes after those that it requires."""

    def __init__(self, protocol: Protocol, probe: Probe) -> None:
        self.protocol = protocol
        self.probe = probe
        if protocol.images:
            probe.images = protocol.images

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

    def report(self, on_check: Callable[[Check], object] = lambda _: None) -> ConformanceReport:
        """Run every check and return the report; call `on_check` before each check.

        Raise UnreachableError if the engine rejected the credentials of every request, so nothing was tested.
        """
        inapplicable_reason = self._inapplicable_reason()
        findings: list[Finding] = []
        # The failed check at the root, by the id of each check that failed or requires it.
        roots: dict[str, str] = {}
        for check in self.protocol.checks:
            on_check(check)
            root = next((roots[required] for required in check.requires if required in roots), None)
            if inapplicable_reason:
                finding = Finding(check, CheckVerdict.NOT_APPLICABLE, inapplicable_reason)
            elif root:
                finding = Finding(check, CheckVerdict.NOT_TESTED, f"{root} failed")
            else:
                finding = _run(check, self.probe)
            if root or finding.verdict is CheckVerdict.FAILED:
                roots[check.id] = root or check.id
            findings.append(finding)
        if self.probe.unauthorized:
            raise UnreachableError(f"{self.probe.target.url}: {_NO_CREDENTIALS}")
        task_type = self.probe.target.task_type
        if self.protocol.images and not inapplicable_reason:
            with suppress(InconclusiveError, RequestLimitError, ViolationError, httpx.HTTPError):
                task_type = task_type_of(self.probe)
        return ConformanceReport(
            protocol=self.protocol,
            target=self.probe.target,
            task_type=task_type,
            findings=findings,
            requests=self.probe.request_count,
        )

    def _inapplicable_reason(self) -> str:
        """Return why the protocol's checks are not for the model; empty if they are."""
        try:
            self.protocol.check_model(self.probe)
        except NotApplicableError as error:
            return str(error)
        except RequestLimitError:
            pass
        return ""


def _run(check: Check, probe: Probe) -> Finding:
    probe.exchanges.clear()
    verdict, reason = CheckVerdict.PASSED, ""
    try:
        check.run(probe)
    except (InconclusiveError, RequestLimitError) as error:
        verdict, reason = CheckVerdict.NOT_TESTED, str(error)
    except NotApplicableError as error:
        verdict, reason = CheckVerdict.NOT_APPLICABLE, str(error)
    except ViolationError as error:
        verdict, reason = CheckVerdict.FAILED, str(error)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # A path can have a version that the engine names.
        verdict, reason = CheckVerdict.FAILED, f"No answer: {error or type(error).__name__}"
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        # An unforeseen response must not stop the other checks.
        verdict, reason = CheckVerdict.NOT_TESTED, f"The answer could not be judged: {error!r}"
    if verdict is not CheckVerdict.NOT_APPLICABLE and probe.exchanges and probe.exchanges[-1].unauthorized:
        # A failure stays one, so that an expired key cannot pass.
        reason = f"{reason}. {_UNAUTHORIZED}" if verdict is CheckVerdict.FAILED else _UNAUTHORIZED
        verdict = verdict if verdict is CheckVerdict.FAILED else CheckVerdict.NOT_TESTED
    return Finding(check, verdict, reason, tuple(probe.exchanges[-_MAX_EXCHANGES:]))
