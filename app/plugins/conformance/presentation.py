"""Present the findings for an engine: as a report for text, and as values for JSON."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from app import __version__
from app.plugins.conformance.check import CheckVerdict, Finding, Level, Need, Protocol
from app.plugins.conformance.exchange import Exchange
from app.plugins.conformance.runner import ConformanceReport
from app.report import Mark, Report, Table

SCHEMA = "charioteer.conformance/2"
"""The schema of the JSON report: its version changes if a field is removed or changes meaning, not if one is added."""

_ORDER = (CheckVerdict.FAILED, CheckVerdict.NOT_TESTED, CheckVerdict.PASSED, CheckVerdict.NOT_APPLICABLE)
_MAX_BODY_BYTES = 2000
_MAX_IDS = 5
_MARKS = {
    CheckVerdict.FAILED: Mark(CheckVerdict.FAILED, "bad"),
    CheckVerdict.NOT_TESTED: Mark(CheckVerdict.NOT_TESTED, "warning"),
    CheckVerdict.PASSED: Mark(CheckVerdict.PASSED, "good"),
    CheckVerdict.NOT_APPLICABLE: Mark(CheckVerdict.NOT_APPLICABLE, "dim"),
}


def present(report: ConformanceReport, *, everything: bool = False) -> Report:
    """Return the report, failures first: with `everything`, also passed checks and those that do not apply.

    Otherwise untested checks with the same reason are one row.
    """
    title = f"{report.protocol.name} at {report.target.url}"
    if report.target.model:
        title += f", model {report.target.model}"
    if report.task_type:
        title += f": {report.task_type} ({'given' if report.target.task_type else 'found'})"
    rows: list[tuple[str | Mark, ...]] = []
    for group in _grouped(report.findings):
        if len(group) > 1 and not everything:
            rows.append(_folded(group))
        elif everything or group[0].verdict in (CheckVerdict.FAILED, CheckVerdict.NOT_TESTED):
            rows += map(_row, group)
    columns = ("check", "", "verdict", "requirement, and result", "needed for")
    counts = [
        f"{level}: {', '.join(f'{report.count(verdict, level)} {verdict}' for verdict in CheckVerdict)}"
        for level in Level
    ]
    return Report(
        title=title,
        tables=[Table(title="", columns=columns, rows=tuple(rows))] if rows else (),
        notes=[*counts, *(_in_words(report, need) for need in report.protocol.needs), _verdict(report)],
    )


def present_checks(protocol: Protocol) -> Table:
    """Return the checks of a protocol."""
    rows = tuple(
        (check.id, str(check.level), check.sentence, check.source, ", ".join(check.needed_for))
        for check in protocol.checks
    )
    return Table(title="", columns=("check", "", "requirement", "source", "needed for"), rows=rows)


def to_plain(report: ConformanceReport) -> dict[str, Any]:
    """Return the report as plain values. Long bodies are truncated; headers from options are left out."""
    return {
        "schema": SCHEMA,
        "charioteer": __version__,
        "protocol": report.protocol.name,
        "url": report.target.url,
        "model": report.target.model,
        "task_type": report.task_type,
        "task_type_given": report.target.task_type is not None,
        "conforms": report.conforms,
        "inapplicable": report.inapplicable_reason,
        "requests": report.requests,
        "counts": {level: {verdict: report.count(verdict, level) for verdict in CheckVerdict} for level in Level},
        "features": {need: _feature(report, need) for need in report.protocol.needs},
        "findings": list(map(_finding, report.findings)),
    }


def _feature(report: ConformanceReport, need: Need) -> dict[str, Any]:
    """Return whether a feature works, with the failed and the untested MUST checks that it depends on."""
    failed = report.musts(CheckVerdict.FAILED, need)
    return {"works": not failed, "failed": failed, "not_tested": report.musts(CheckVerdict.NOT_TESTED, need)}


def _finding(finding: Finding) -> dict[str, Any]:
    check = finding.check
    return {
        **{name: getattr(check, name) for name in ("id", "level", "sentence", "source", "needed_for")},
        "verdict": finding.verdict,
        "reason": finding.reason,
        "exchanges": [_exchange(exchange) for exchange in finding.exchanges],
    }


def _exchange(exchange: Exchange) -> dict[str, Any]:
    sent = {"headers": dict(exchange.request_headers), "body": _truncate_body(exchange.request_body)}
    received = {"headers": dict(exchange.headers), "body": _truncate_body(exchange.body)}
    return {
        "request": {"method": exchange.method, "path": exchange.path, **sent},
        "response": {"status": exchange.status, **received},
    }


def _grouped(findings: Sequence[Finding]) -> Sequence[Sequence[Finding]]:
    """Return the findings in groups, failures first: untested checks with the same reason together, others alone."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: _ORDER.index(finding.verdict)):
        key = finding.reason if finding.verdict is CheckVerdict.NOT_TESTED else finding.check.id
        groups.setdefault((finding.verdict, key), []).append(finding)
    return list(groups.values())


def _truncate_body(body: bytes) -> str:
    """Return a body as text, truncated if it is long."""
    text = body[:_MAX_BODY_BYTES].decode(errors="replace")
    return text if len(body) <= _MAX_BODY_BYTES else f"{text} ... ({len(body)} bytes)"


def _row(finding: Finding) -> tuple[str | Mark, ...]:
    check = finding.check
    text = f"{check.sentence}\n{finding.reason}".rstrip()
    return check.id, str(check.level), _MARKS[finding.verdict], text, ", ".join(check.needed_for)


def _folded(findings: Sequence[Finding]) -> tuple[str | Mark, ...]:
    """Return one row for untested checks with the same reason."""
    levels = Counter(finding.check.level for finding in findings)
    ids = ", ".join(finding.check.id for finding in findings)
    level = "\n".join(f"{levels[level]} {level}" for level in Level if levels[level])
    return f"{len(findings)} checks", level, _MARKS[CheckVerdict.NOT_TESTED], f"{findings[0].reason}\n{ids}", ""


def _verdict(report: ConformanceReport) -> Mark:
    requests = f"by {report.requests} requests."
    if report.inapplicable_reason:
        return Mark(f"The engine is not checked with this model ({report.inapplicable_reason}), {requests}", "dim")
    if not report.conforms:
        return Mark(f"The engine does not conform, {requests}", "bad")
    if untested := report.count(CheckVerdict.NOT_TESTED, Level.MUST):
        return Mark(f"The engine conforms but for {untested} MUST not tested, {requests}", "warning")
    return Mark(f"The engine conforms, {requests}", "good")


def _in_words(report: ConformanceReport, need: Need) -> Mark:
    result = _feature(report, need)
    if report.inapplicable_reason:
        return Mark(f"{need}: {CheckVerdict.NOT_APPLICABLE}", "dim")
    if result["failed"]:
        return Mark(f"{need}: would not work: {_shortened(result['failed'])} failed", "bad")
    if result["not_tested"]:
        return Mark(f"{need}: works as far as was tested; not tested: {_shortened(result['not_tested'])}", "warning")
    return Mark(f"{need}: works", "good")


def _shortened(ids: Sequence[str]) -> str:
    return ", ".join(ids if len(ids) <= _MAX_IDS else (*ids[:_MAX_IDS], f"and {len(ids) - _MAX_IDS} more"))
