"""Render a report as JSON, and describe findings."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from app import __version__
from app.plugins.conformance.check import Finding, Level, Need, Verdict
from app.plugins.conformance.client.exchange import Exchange
from app.plugins.conformance.runner import ConformanceReport

SCHEMA = "charioteer.conformance/1"
"""The schema of the JSON report: its version changes if a field is removed or changes meaning, not if one is added."""


_ORDER = (Verdict.FAILED, Verdict.NOT_TESTED, Verdict.PASSED, Verdict.NOT_APPLICABLE)
_MAX_BODY_BYTES = 2000
_READERS = (Need.STORAGE, Need.DRIFT, Need.EVALUATION)


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
        "counts": {level: {verdict: report.count(verdict, level) for verdict in Verdict} for level in Level},
        "features": {need: feature(report, need) for need in report.protocol.needs},
        "findings": [_finding(report, finding) for finding in report.findings],
    }


def json_report(report: ConformanceReport) -> bytes:
    """Return `to_plain` as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(to_plain(report)))


def feature(report: ConformanceReport, need: Need) -> dict[str, Any]:
    """Return whether a feature works, with the failed and the untested MUST checks that it depends on."""
    failed = report.musts(Verdict.FAILED, need)
    return {"works": not failed, "failed": failed, "not_tested": report.musts(Verdict.NOT_TESTED, need)}


def _finding(report: ConformanceReport, finding: Finding) -> dict[str, Any]:
    check, needs = finding.check, report.protocol.needs
    return {
        "id": check.id,
        "level": check.level,
        "verdict": finding.verdict,
        "sentence": check.sentence,
        "source": check.source,
        "needed_for": check.needed_for,
        "readable_by": readable_by(finding, needs),
        "reason": finding.reason,
        "readers": describe_readers(finding, needs),
        "exchanges": [_exchange(exchange) for exchange in finding.exchanges],
    }


def _exchange(exchange: Exchange) -> dict[str, Any]:
    sent = {"headers": dict(exchange.request_headers), "body": _truncate_body(exchange.request_body)}
    received = {"headers": dict(exchange.headers), "body": _truncate_body(exchange.body)}
    return {
        "request": {"method": exchange.method, "path": exchange.path, **sent},
        "response": {"status": exchange.status, **received},
    }


def grouped(findings: Sequence[Finding]) -> Sequence[Sequence[Finding]]:
    """Return the findings in groups, failures first: untested checks with the same reason together, others alone."""
    groups: dict[tuple[str, str], list[Finding]] = {}
    for finding in sorted(findings, key=lambda finding: _ORDER.index(finding.verdict)):
        key = finding.reason if finding.verdict is Verdict.NOT_TESTED else finding.check.id
        groups.setdefault((finding.verdict, key), []).append(finding)
    return list(groups.values())


def readable_by(finding: Finding, needs: Sequence[Need]) -> Mapping[Need, bool]:
    """Return whether storage, drift detection and evaluation can read responses although a check failed.

    The result has only those of the protocol's `needs`, and is empty unless the check failed.
    """
    if finding.verdict is not Verdict.FAILED:
        return {}
    failed_needs = finding.check.needed_for if finding.check.level is Level.MUST else ()
    return {need: need not in failed_needs for need in needs if need in _READERS}


def describe_readers(finding: Finding, needs: Sequence[Need]) -> str:
    """Return `readable_by` as a sentence, or an empty string if it is empty."""
    readable = readable_by(finding, needs)
    parts: list[str] = []
    for phrase, wanted in (("would not be read by", False), ("would still be read by", True)):
        if readers := [need for need, is_readable in readable.items() if is_readable is wanted]:
            parts.append(f"{phrase} {', '.join(readers)}")
    return f"Answers {'; '.join(parts)}." if parts else ""


def _truncate_body(body: bytes) -> str:
    """Return a body as text, truncated if it is long."""
    text = body[:_MAX_BODY_BYTES].decode(errors="replace")
    return text if len(body) <= _MAX_BODY_BYTES else f"{text} ... ({len(body)} bytes)"
