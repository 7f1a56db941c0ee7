"""Render a report as one self-contained HTML page."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from app.conformance.check import Verdict
from app.conformance.output.plain import to_plain
from app.conformance.runner import ConformanceReport

__all__ = ("html_report",)

_ORDER = [verdict.value for verdict in (Verdict.FAILED, Verdict.NOT_TESTED, Verdict.PASSED, Verdict.NOT_APPLICABLE)]


def html_report(report: ConformanceReport) -> bytes:
    """Return the page. Text from the engine is escaped, so a browser never runs it."""
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8")
    )
    values = to_plain(report)
    values["findings"].sort(key=_rank)
    return template.render(report=values).encode()


def _rank(finding: dict[str, Any]) -> int:
    return _ORDER.index(finding["verdict"])
