"""Print a report on a terminal, failures first."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.conformance.check import Level, Need, Verdict
from app.conformance.output.descriptions import describe_readers
from app.conformance.output.plain import feature
from app.conformance.runner import ConformanceReport

__all__ = ("print_report",)

_COLOURS = {Verdict.FAILED: "red", Verdict.NOT_TESTED: "yellow", Verdict.PASSED: "green", Verdict.NOT_APPLICABLE: "dim"}


def print_report(report: ConformanceReport, console: Console, *, everything: bool = False) -> None:
    """Print the report.

    Args:
        report: the findings.
        console: the terminal.
        everything: also print passed checks, and checks that do not apply.
    """
    verdicts = [Verdict.FAILED, Verdict.NOT_TESTED]
    if everything:
        verdicts += [Verdict.PASSED, Verdict.NOT_APPLICABLE]
    table = Table("check", "", "verdict", "requirement, and result", "needed for")
    for verdict in verdicts:
        for finding in report.findings:
            if finding.verdict is verdict:
                check = finding.check
                text = "\n".join(
                    filter(None, (check.sentence, finding.reason, describe_readers(finding, report.needs)))
                )
                colour = _COLOURS[verdict]
                needed_for = ", ".join(check.needed_for)
                table.add_row(check.id, check.level, f"[{colour}]{verdict}[/{colour}]", escape(text), needed_for)
    if table.row_count:
        console.print(table)
    heading = f"{report.protocol} at {escape(report.target.url)}"
    if report.task_type:
        heading += f": {report.task_type} ({'given' if report.target.task_type else 'found'})"
    console.print(heading)
    for level in Level:
        counts = ", ".join(f"{report.count(verdict, level)} {verdict}" for verdict in Verdict)
        console.print(f"{level}: {counts}")
    for need in report.needs:
        console.print(f"{need}: {_in_words(report, need)}")
    console.print(f"The engine {_verdict(report)}, by {report.requests} requests.")


def _verdict(report: ConformanceReport) -> str:
    if not report.conforms:
        return "[red]does not conform[/red]"
    untested = report.count(Verdict.NOT_TESTED, Level.MUST)
    return f"[yellow]conforms but for {untested} MUST not tested[/yellow]" if untested else "[green]conforms[/green]"


def _in_words(report: ConformanceReport, need: Need) -> str:
    result = feature(report, need)
    if result["failed"]:
        return f"[red]would not work[/red]: {', '.join(result['failed'])} failed"
    if result["not_tested"]:
        return f"works as far as was tested; not tested: {', '.join(result['not_tested'])}"
    return "[green]works[/green]"
