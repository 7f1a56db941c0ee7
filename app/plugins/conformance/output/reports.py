"""Render a report as JSON, as JUnit XML for CI systems, and as one self-contained HTML page.

In JUnit, a failed SHOULD is a skipped test with its reason, because only a MUST fails a build or changes the exit code.
"""

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from jinja2 import Environment, StrictUndefined

from app import __version__
from app.plugins.conformance.check import Finding, Level, Need, Verdict
from app.plugins.conformance.client.exchange import Exchange
from app.plugins.conformance.runner import ConformanceReport

SCHEMA = "charioteer.conformance/1"
"""The schema of the JSON report: its version changes if a field is removed or changes meaning, not if one is added."""


_ORDER = (Verdict.FAILED, Verdict.NOT_TESTED, Verdict.PASSED, Verdict.NOT_APPLICABLE)
_MAX_BODY_BYTES = 2000
_READERS = (Need.STORAGE, Need.DRIFT, Need.EVALUATION)
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


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


def html_report(report: ConformanceReport) -> bytes:
    """Return the page. Text from the engine is escaped, so a browser never runs it."""
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8")
    )
    values = to_plain(report)
    values["groups"] = [[_finding(report, finding) for finding in group] for group in grouped(report.findings)]
    return template.render(report=values).encode()


def junit_report(report: ConformanceReport) -> bytes:
    """Return one test suite with one test case for each check."""
    failed = report.count(Verdict.FAILED, Level.MUST)
    skipped = len(report.findings) - failed - report.count(Verdict.PASSED)
    counts = {"tests": str(len(report.findings)), "failures": str(failed), "errors": "0", "skipped": str(skipped)}
    suites = ET.Element("testsuites", counts)
    suite = ET.SubElement(
        suites, "testsuite", {"name": f"{report.protocol.name} {_clean(report.target.url)}", **counts}
    )
    _properties(suite, report)
    for finding in report.findings:
        _case(suite, report, finding)
    return ET.tostring(suites, encoding="utf-8", xml_declaration=True)


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


def _properties(suite: ET.Element, report: ConformanceReport) -> None:
    values = to_plain(report)
    properties = ET.SubElement(suite, "properties")
    for name in ("schema", "charioteer", "url", "model", "task_type", "requests"):
        if values[name] is not None:
            ET.SubElement(properties, "property", {"name": name, "value": _clean(str(values[name]))})
    for need, result in values["features"].items():
        value = "works" if result["works"] else "would not work"
        value = Verdict.NOT_APPLICABLE if values["inapplicable"] else value
        ET.SubElement(properties, "property", {"name": need, "value": value})


def _case(suite: ET.Element, report: ConformanceReport, finding: Finding) -> None:
    check = finding.check
    name = f"{check.id} {check.sentence}"
    case = ET.SubElement(suite, "testcase", {"classname": report.protocol.name, "name": name, "time": "0"})
    if finding.verdict is Verdict.FAILED and check.level is Level.MUST:
        failure = ET.SubElement(case, "failure", {"type": check.level, "message": _clean(finding.reason)})
        failure.text = _clean(describe_failure(finding, report.protocol.needs))
    elif finding.verdict is not Verdict.PASSED:
        readers = describe_readers(finding, report.protocol.needs)
        message = f"{check.level} {finding.verdict}: {finding.reason} {readers}".strip()
        ET.SubElement(case, "skipped", {"message": _clean(message)})


def _clean(text: str) -> str:
    return _NO_XML.sub("\ufffd", text)


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


def describe_failure(finding: Finding, needs: Sequence[Need]) -> str:
    """Return the requirement, why it is not met, the features that still work, and the exchanges as evidence."""
    check = finding.check
    lines = [f"{check.id} {check.level}: {check.sentence}", f"({check.source})", finding.reason]
    lines.append(describe_readers(finding, needs))
    return "\n".join([*filter(None, lines), *(f"\n{_evidence(exchange)}" for exchange in finding.exchanges)])


def _evidence(exchange: Exchange) -> str:
    """Return a request and its response as text, with long bodies truncated."""
    parts = (
        (f"{exchange.method} {exchange.path}", exchange.request_headers, exchange.request_body),
        (f"-> {exchange.status}", exchange.headers, exchange.body),
    )
    lines: list[str] = []
    for first, headers, body in parts:
        lines += [first, *(f"{name}: {value}" for name, value in headers.items()), _truncate_body(body)]
    return "\n".join(filter(None, lines))


def _truncate_body(body: bytes) -> str:
    """Return a body as text, truncated if it is long."""
    text = body[:_MAX_BODY_BYTES].decode(errors="replace")
    return text if len(body) <= _MAX_BODY_BYTES else f"{text} ... ({len(body)} bytes)"
