"""Render a report as one self-contained HTML page."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from app.conformance.check import Verdict
from app.conformance.output.plain import to_plain
from app.conformance.runner import ConformanceReport

_ORDER = [verdict.value for verdict in (Verdict.FAILED, Verdict.NOT_TESTED, Verdict.PASSED, Verdict.NOT_APPLICABLE)]


def html_report(report: ConformanceReport) -> bytes:
    """Return the page. Text from the engine is escaped, so a browser never runs it."""
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8")
    )
    values = to_plain(report)
    values["groups"] = _groups(sorted(values.pop("findings"), key=_rank))
    return template.render(report=values).encode()


def _groups(findings: Sequence[dict[str, Any]]) -> Sequence[Sequence[dict[str, Any]]]:
    """Return the findings in groups: untested checks with the same reason together, each other finding alone."""
    groups: dict[object, list[dict[str, Any]]] = {}
    for finding in findings:
        is_untested = finding["verdict"] == Verdict.NOT_TESTED.value
        groups.setdefault(finding["reason"] if is_untested else (finding["id"],), []).append(finding)
    return list(groups.values())


def _rank(finding: dict[str, Any]) -> int:
    return _ORDER.index(finding["verdict"])
