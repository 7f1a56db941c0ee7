"""Render a report as a self-contained page: curves, tables, confusion, and the worst images."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined

from app import __version__
from app.evaluation.output.mistake_images import draw_mistake
from app.evaluation.output.table import format_cell
from app.evaluation.report import Confusion, EvaluationReport, Mistake

_MAX_LABELS = 25
"""Maximum size of a drawn matrix. The largest cells are always listed."""
_MAX_CELLS = 30
_MAX_FAILURES = 50
_COLOURS = ("#2a78d6", "#d9602b", "#2a9d5c", "#b43fb0", "#c8a200", "#11a3a8", "#8a5bd6", "#d63f62", "#7a8794")


def html_report(report: EvaluationReport, worst: int = 24) -> bytes:
    """Render the page. Labels, names and answers are escaped."""
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8")
    )
    measures = report.measures
    return template.render(
        report=report,
        version=__version__,
        figures=[(figure.name, figure.title, format_cell(figure.value)) for figure in measures.figures],
        tables=measures.tables,
        charts=measures.charts,
        colours=_COLOURS,
        matrix=_matrix(measures.confusion),
        cells=_cells(measures.confusion),
        worst=_worst_images(measures.mistakes, worst),
        mistakes=len({mistake.result.item.image for mistake in measures.mistakes}),
        failures=list(report.failures.items())[:_MAX_FAILURES],
        words=format_cell,
        zip=zip,
    ).encode()


def _worst_images(mistakes: Sequence[Mistake], count: int) -> list[tuple[str, dict[str, Any] | None, list[str]]]:
    """Return the worst images, each once: its name, a drawing of its worst mistake, and all its mistakes."""
    by_image: dict[Path, list[Mistake]] = {}
    for mistake in mistakes:
        by_image.setdefault(mistake.result.item.image, []).append(mistake)
    return [
        (image_mistakes[0].result.item.id, draw_mistake(image_mistakes[0]), [mistake.why for mistake in image_mistakes])
        for image_mistakes in list(by_image.values())[:count]
    ]


def _matrix(confusion: Confusion | None) -> dict[str, Any] | None:
    """Return rows of cells, each with its count and its share of the row; labels without objects share a column."""
    true = _true_indexes(confusion)
    if confusion is None or not 1 <= len(true) <= _MAX_LABELS:
        return None
    others = [index for index in range(len(confusion.labels)) if index not in true]
    names = [confusion.labels[index] for index in true]
    rows: list[tuple[str, list[int]]] = []
    for index in true:
        missed = [confusion.missed[index]] if confusion.missed else []
        rows.append((confusion.labels[index], [*_folded(confusion.counts[index], true, others), *missed]))
    if confusion.extra:
        rows.append(("nothing", _folded(confusion.extra, true, others)))
    columns = [*names, *(["other labels"] if others else []), *(["missed"] if confusion.missed else [])]
    shares = [(name, [(count, count / (sum(counts) or 1)) for count in counts]) for name, counts in rows]
    return {"columns": columns, "rows": shares, "objects": bool(confusion.missed)}


def _true_indexes(confusion: Confusion | None) -> list[int]:
    """Return the indexes of the labels that images or objects have."""
    if confusion is None:
        return []
    missed = confusion.missed or (0,) * len(confusion.labels)
    return [index for index, counts in enumerate(confusion.counts) if sum(counts) + missed[index]]


def _folded(counts: Sequence[int], true: Sequence[int], others: Sequence[int]) -> list[int]:
    return [*(counts[index] for index in true), *([sum(counts[index] for index in others)] if others else [])]


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
    if confusion.extra:
        cells += [("", labels[index], confusion.extra[index]) for index in _true_indexes(confusion)]
    largest = sorted((cell for cell in cells if cell[2]), key=lambda cell: -cell[2])[:_MAX_CELLS]
    return [
        (true or "nothing", guess or "missed", count, ", ".join(confusion.examples.get(f"{true} -> {guess}", ())))
        for true, guess, count in largest
    ]
