"""Print a report on a terminal, failures first, or the checks without an engine."""

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.plugins.conformance.check import Finding, Level, Need, Protocol, Verdict
from app.plugins.conformance.output.reports import describe_readers, feature, grouped
from app.plugins.conformance.protocols import PROTOCOLS
from app.plugins.conformance.runner import ConformanceReport

_MAX_IDS = 5
_COLOURS = {Verdict.FAILED: "red", Verdict.NOT_TESTED: "yellow", Verdict.PASSED: "green", Verdict.NOT_APPLICABLE: "dim"}


def print_report(report: ConformanceReport, console: Console, *, everything: bool = False) -> None:
    """Print the report: with `everything`, also passed checks and those that do not apply.

    Otherwise untested checks with the same reason are one row.
    """
    table = Table("check", "", "verdict", "requirement, and result", "needed for")
    for group in grouped(report.findings):
        if len(group) > 1 and not everything:
            table.add_row(*_folded(group))
        elif everything or group[0].verdict in (Verdict.FAILED, Verdict.NOT_TESTED):
            for finding in group:
                check = finding.check
                lines = (check.sentence, finding.reason, describe_readers(finding, report.protocol.needs))
                table.add_row(
                    check.id, check.level, _coloured(finding.verdict), _printable("\n".join(filter(None, lines))),
                    ", ".join(check.needed_for),
                )  # fmt: skip
    if table.row_count:
        console.print(table)
    heading = f"{report.protocol.name} at {escape(report.target.url)}"
    if report.target.model:
        heading += f", model {escape(report.target.model)}"
    if report.task_type:
        heading += f": {report.task_type} ({'given' if report.target.task_type else 'found'})"
    console.print(heading)
    for level in Level:
        counts = ", ".join(f"{report.count(verdict, level)} {verdict}" for verdict in Verdict)
        console.print(f"{level}: {counts}")
    for need in report.protocol.needs:
        console.print(f"{need}: {_in_words(report, need)}")
    console.print(f"The engine {_verdict(report)}, by {report.requests} requests.")


def print_checks(console: Console, protocol: Protocol | None = None) -> None:
    """Print the number of checks of each protocol, or the checks of `protocol`."""
    if protocol is None:
        table = Table("protocol", "checks", "MUST", "SHOULD")
        for item in PROTOCOLS:
            counts = [sum(check.level is level for check in item.checks) for level in Level]
            table.add_row(item.name, *map(str, (sum(counts), *counts)))
    else:
        table = Table("check", "", "requirement", "source", "needed for")
        for check in protocol.checks:
            table.add_row(check.id, check.level, escape(check.sentence), escape(check.source),
                          ", ".join(check.needed_for))  # fmt: skip
    console.print(table)


def _folded(findings: Sequence[Finding]) -> Sequence[str]:
    """Return one row for untested checks with the same reason."""
    levels = Counter(finding.check.level for finding in findings)
    ids = ", ".join(finding.check.id for finding in findings)
    level = "\n".join(f"{levels[level]} {level}" for level in Level if levels[level])
    reason = _printable(f"{findings[0].reason}\n{ids}")
    return f"{len(findings)} checks", level, _coloured(Verdict.NOT_TESTED), reason, ""


def _printable(text: str) -> str:
    """Return text from an engine without markup, and with control characters as visible escapes."""
    return escape("".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text))


def _coloured(verdict: Verdict) -> str:
    return f"[{_COLOURS[verdict]}]{verdict}[/{_COLOURS[verdict]}]"


def _shortened(ids: Sequence[str]) -> str:
    return ", ".join(ids if len(ids) <= _MAX_IDS else (*ids[:_MAX_IDS], f"and {len(ids) - _MAX_IDS} more"))


def _verdict(report: ConformanceReport) -> str:
    if report.inapplicable_reason:
        return f"[dim]is not checked with this model[/dim] ({_printable(report.inapplicable_reason)})"
    if not report.conforms:
        return "[red]does not conform[/red]"
    untested = report.count(Verdict.NOT_TESTED, Level.MUST)
    return f"[yellow]conforms but for {untested} MUST not tested[/yellow]" if untested else "[green]conforms[/green]"


def _in_words(report: ConformanceReport, need: Need) -> str:
    result = feature(report, need)
    if report.inapplicable_reason:
        return f"[dim]{Verdict.NOT_APPLICABLE}[/dim]"
    if result["failed"]:
        return f"[red]would not work[/red]: {_shortened(result['failed'])} failed"
    if result["not_tested"]:
        return f"works as far as was tested; not tested: {_shortened(result['not_tested'])}"
    return "[green]works[/green]"
