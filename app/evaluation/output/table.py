"""Print a report on a terminal: the figures, then the tables."""

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from app.evaluation.report import Report, Table

__all__ = ("in_words", "print_report")

_MOST_ROWS = 40
_MOST_FAILURES = 5


def print_report(report: Report, console: Console) -> None:
    """Print the report. Long tables are truncated."""
    items = "questions" if report.measures.figures[0].name == "exact_match" else "images"
    console.print(f"{escape(report.source)} on {escape(report.dataset)} ({report.format}): {report.task}")
    console.print(f"{report.measured} of {report.images} {items} measured")
    figures = RichTable("figure", "value", "")
    for figure in report.measures.figures:
        figures.add_row(figure.name, in_words(figure.value), escape(figure.title))
    console.print(figures)
    for table in report.measures.tables:
        _print_table(table, console)
    for name, reason in list(report.failures.items())[:_MOST_FAILURES]:
        console.print(f"[red]not answered[/red] {escape(name)}: {escape(reason)}")
    for note in report.notes:
        console.print(f"- {escape(note)}")


def in_words(value: str | float | int | None) -> str:
    """Format a cell: four digits for a share, a dash for an undefined value."""
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _print_table(table: Table, console: Console) -> None:
    made = RichTable(*table.columns, title=escape(table.title), title_justify="left")
    for row in table.rows[:_MOST_ROWS]:
        made.add_row(*(escape(in_words(cell)) for cell in row))
    console.print(made)
    if len(table.rows) > _MOST_ROWS:
        console.print(f"... and {len(table.rows) - _MOST_ROWS} more rows; --json or --html has all")
