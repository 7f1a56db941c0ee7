"""A report as plain values, which JSON and HTML are made of."""

from typing import Any

import msgspec

from app import __version__
from app.conformance.clause import Finding, Level, Need, Verdict
from app.conformance.holding import Report
from app.conformance.output.words import cut, readable_by, readers_of
from app.conformance.probe import Exchange

__all__ = ("SCHEMA", "feature", "json_report", "plain")

SCHEMA = "charioteer.conformance/1"
"""The form of the JSON report: the number grows when a field changes its meaning or goes, not when one comes."""


def plain(report: Report) -> dict[str, Any]:
    """The whole report. Bodies of requests and answers are cut; headers given for the engine's gate are not in it."""
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
            level.value: {verdict.value: report.counted(verdict, level) for verdict in Verdict} for level in Level
        },
        "features": {need.value: feature(report, need) for need in report.needs},
        "findings": [_finding(report, each) for each in report.findings],
    }


def json_report(report: Report) -> bytes:
    """`plain` as JSON."""
    return msgspec.json.format(msgspec.json.encode(plain(report)))


def feature(report: Report, need: Need) -> dict[str, Any]:
    """Whether one reader of answers could go on: yes, no, or as far as was tested."""
    failing, untested = report.failing(need), report.untested(need)
    return {"works": not failing, "failed": list(failing), "not_tested": list(untested)}


def _finding(report: Report, finding: Finding) -> dict[str, Any]:
    clause = finding.clause
    return {
        "id": clause.id,
        "level": clause.level.value,
        "verdict": finding.verdict.value,
        "sentence": clause.sentence,
        "source": clause.source,
        "needed_for": [each.value for each in clause.needed_for],
        "readable_by": {need.value: still for need, still in readable_by(finding, report.needs).items()},
        "reason": finding.reason,
        "readers": readers_of(finding, report.needs),
        "exchanges": [_exchange(each) for each in finding.exchanges],
    }


def _exchange(exchange: Exchange) -> dict[str, Any]:
    return {
        "request": {
            "method": exchange.method,
            "path": exchange.path,
            "headers": dict(exchange.sent_headers),
            "body": cut(exchange.sent),
        },
        "response": {
            "status": exchange.status,
            "headers": dict(exchange.headers),
            "body": cut(exchange.body),
        },
    }
