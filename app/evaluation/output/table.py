"""Print a report on a terminal: the figures, then the tables."""

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable

from app.evaluation.report import EvaluationReport, Table

_MAX_ROWS = 40
_MAX_FAILURES = 5


def print_report(report: EvaluationReport, console: Console) -> None:
    """Print the report. Long tables are truncated."""
    items = "questions" if report.measures.figures[0].name == "exact_match" else "images"
    console.print(f"{escape(report.source)} on {escape(report.dataset)} ({report.format}): {report.task}")
    console.print(f"{report.measured} of {report.images} {items} measured")
    figures = RichTable("figure", "value", "")
    for figure in report.measures.figures:
        figures.add_row(figure.name, format_cell(figure.value), escape(figure.title))
    console.print(figures)
    for table in report.measures.tables:
        _print_table(table, console)
    for name, reason in list(report.failures.items())[:_MAX_FAILURES]:
        console.print(f"[red]not answered[/red] {escape(name)}: {escape(reason)}")
    for note in report.notes:
        console.print(f"- {escape(note)}")


def format_cell(value: str | float | int | None) -> str:
    """Format a cell: four digits for a share, a dash for an undefined value."""
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _print_table(table: Table, console: Console) -> None:
    rich_table = RichTable(*table.columns, title=escape(table.title), title_justify="left")
    for row in table.rows[:_MAX_ROWS]:
        rich_table.add_row(*(escape(format_cell(cell)) for cell in row))
    if console.measure(rich_table).maximum >= console.width:
        # Without lines, a narrow terminal cuts off no numbers.
        rich_table.box, rich_table.padding, rich_table.collapse_padding = SIMPLE_HEAD, (0, 1), True
        rich_table.columns[0].overflow = "fold"
        for column in rich_table.columns[1:]:
            column.no_wrap = True
    console.print(rich_table)
    if len(table.rows) > _MAX_ROWS:
        console.print(f"... and {len(table.rows) - _MAX_ROWS} more rows; --json or --html has all")
