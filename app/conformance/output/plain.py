"""Convert a report to plain values, the source of JSON and HTML."""

from typing import Any

import msgspec

from app import __version__
from app.conformance.check import Finding, Level, Need, Verdict
from app.conformance.client.probe import Exchange
from app.conformance.output.descriptions import describe_readers, readable_by, truncate_body
from app.conformance.runner import ConformanceReport

SCHEMA = "charioteer.conformance/1"
"""The schema of the JSON report: its version changes if a field is removed or changes meaning, not if one is added."""


def to_plain(report: ConformanceReport) -> dict[str, Any]:
    """Return the report as plain values. Long bodies are truncated; headers from options are left out."""
    return {
        "schema": SCHEMA,
        "charioteer": __version__,
        "protocol": report.protocol,
        "url": report.target.url,
        "model": report.target.model,
        "task_type": report.task_type,
        "task_type_given": report.target.task_type is not None,
        "conforms": report.conforms,
        "requests": report.requests,
        "counts": {
            level.value: {verdict.value: report.count(verdict, level) for verdict in Verdict} for level in Level
        },
        "features": {need.value: feature(report, need) for need in report.needs},
        "findings": [_finding(report, finding) for finding in report.findings],
    }


def json_report(report: ConformanceReport) -> bytes:
    """Return `to_plain` as indented JSON."""
    return msgspec.json.format(msgspec.json.encode(to_plain(report)))


def feature(report: ConformanceReport, need: Need) -> dict[str, Any]:
    """Return whether a feature works, with the failed and the untested MUST checks that it depends on."""
    failing, untested = report.failing(need), report.untested(need)
    return {"works": not failing, "failed": list(failing), "not_tested": list(untested)}


def _finding(report: ConformanceReport, finding: Finding) -> dict[str, Any]:
    check = finding.check
    return {
        "id": check.id,
        "level": check.level.value,
        "verdict": finding.verdict.value,
        "sentence": check.sentence,
        "source": check.source,
        "needed_for": [need.value for need in check.needed_for],
        "readable_by": {need.value: is_readable for need, is_readable in readable_by(finding, report.needs).items()},
        "reason": finding.reason,
        "readers": describe_readers(finding, report.needs),
        "exchanges": [_exchange(exchange) for exchange in finding.exchanges],
    }


def _exchange(exchange: Exchange) -> dict[str, Any]:
    return {
        "request": {
            "method": exchange.method,
            "path": exchange.path,
            "headers": dict(exchange.request_headers),
            "body": truncate_body(exchange.request_body),
        },
        "response": {
            "status": exchange.status,
            "headers": dict(exchange.headers),
            "body": truncate_body(exchange.body),
        },
    }
