"""A report as one page that needs nothing else."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from app.conformance.clause import Verdict
from app.conformance.holding import Report
from app.conformance.output.plain import plain

__all__ = ("html_report",)

_ORDER = [verdict.value for verdict in (Verdict.FAILED, Verdict.NOT_TESTED, Verdict.PASSED, Verdict.NOT_APPLICABLE)]


def html_report(report: Report) -> bytes:
    """The page. What the engine said is escaped: it is shown, never run."""
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8")
    )
    said = plain(report)
    said["findings"].sort(key=_place)
    return template.render(report=said).encode()


def _place(finding: dict[str, Any]) -> int:
    return _ORDER.index(finding["verdict"])
