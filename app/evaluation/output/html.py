"""Render a report as a self-contained page: curves, tables, confusion, and the worst images."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from app import __version__
from app.evaluation.output.charts import svg_chart
from app.evaluation.output.mistake_images import svg_image
from app.evaluation.output.table import format_cell
from app.evaluation.report import Confusion, EvaluationReport

__all__ = ("html_report",)

_MAX_LABELS = 25
"""Maximum size of a drawn matrix. The largest cells are always listed."""
_MAX_CELLS = 30
_MAX_FAILURES = 50


def html_report(report: EvaluationReport, worst: int = 24) -> bytes:
    """Render the page. Labels, names and answers are escaped.

    Args:
        report: the report.
        worst: maximum number of drawn images with mistakes.
    """
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8")
    )
    measures = report.measures
    return template.render(
        report=report,
        version=__version__,
        figures=[(figure.name, figure.title, format_cell(figure.value)) for figure in measures.figures],
        tables=measures.tables,
        charts=[(chart.title, svg_chart(chart)) for chart in measures.charts],
        matrix=_matrix(measures.confusion),
        cells=_cells(measures.confusion),
        worst=[(mistake, svg_image(mistake)) for mistake in measures.mistakes[:worst]],
        mistakes=len(measures.mistakes),
        failures=list(report.failures.items())[:_MAX_FAILURES],
        words=format_cell,
    ).encode()


def _matrix(confusion: Confusion | None) -> dict[str, Any] | None:
    """Return rows of cells, each with its count and its share of the row."""
    if confusion is None or not 1 <= len(confusion.labels) <= _MAX_LABELS:
        return None
    missed = confusion.missed or None
    rows: list[tuple[str, list[tuple[int, float]]]] = []
    for index, (label, counts) in enumerate(zip(confusion.labels, confusion.counts, strict=True)):
        row_counts = [*counts, missed[index]] if missed else [*counts]
        total = sum(row_counts) or 1
        rows.append((label, [(count, count / total) for count in row_counts]))
    if confusion.extra:
        total = sum(confusion.extra) or 1
        rows.append(("nothing", [(count, count / total) for count in confusion.extra]))
    columns = [*confusion.labels, *(["missed"] if missed else [])]
    return {"columns": columns, "rows": rows, "objects": missed is not None}


def _cells(confusion: Confusion | None) -> list[tuple[str, str, int, str]]:
    """Return the largest cells off the diagonal: truth, prediction, count, and some images."""
    if confusion is None:
        return []
    labels = confusion.labels
    cells = [
        (truth, predicted, confusion.counts[row][column])
        for row, truth in enumerate(labels)
        for column, predicted in enumerate(labels)
        if row != column
    ]
    cells += [(label, "", count) for label, count in zip(labels, confusion.missed, strict=False)]
    cells += [("", label, count) for label, count in zip(labels, confusion.extra, strict=False)]
    largest = sorted((cell for cell in cells if cell[2]), key=lambda cell: -cell[2])[:_MAX_CELLS]
    return [
        (true or "nothing", guess or "missed", count, ", ".join(confusion.examples.get(f"{true} -> {guess}", ())))
        for true, guess, count in largest
    ]
