"""Render a report for browsers, programs and terminals."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pybase64
from jinja2 import Environment, StrictUndefined
from rich.console import Console

from app import __version__
from app.core.cli.terminal import printable, table
from app.plugins.drawing.palette import VIVID
from app.plugins.evaluation.dataset import LabelledObject, Ring
from app.plugins.evaluation.masks import decode_mask
from app.plugins.evaluation.report import Confusion, EvaluationReport, Measures, Mistake
from tasks.inference.error import InferenceError
from tasks.vision.contours import contours_of_mask
from tasks.vision.image import decode_image, small_jpeg

_MAX_LABELS = 25
"""Maximum size of a drawn matrix. The largest cells are always listed."""
_MAX_CELLS = 30
_MAX_PAGE_FAILURES = 50
_MAX_IMAGES = 24
"""Images with mistakes on the page."""
_COLOURS = [f"#{bytes(colour).hex()}" for colour in (*VIVID[24:48:3], *VIVID[72:96:3])]
"""Eight hues in two middle lightnesses, which are readable on white and on black."""
_MAX_JSON_MISTAKES = 100
_CLASS_FIGURES = {
    "AP": "map_coco",
    "AP50": "ap50",
    "AP75": "ap75",
    "AR": "ar",
    "precision": "precision",
    "recall": "recall",
    "F1": "f1",
    "ROC AUC": "roc_auc",
}
"""The figure that has the mean over the classes, by the column of the table of classes."""
_PRINTED_FIGURES = 5
_MAX_PRINTED_FAILURES = 5

_SIDE = 480
_QUALITY = 78
_MAX_PIXELS = 200_000_000
_LETTERS = 24
"""Width of an image divided by the height of its labels."""
_LETTER_WIDTH = 0.65
"""Maximum width of a letter, as a share of its height."""


def html_report(report: EvaluationReport) -> bytes:
    """Render a self-contained page: curves, tables, confusion, and the worst images. All texts are escaped."""
    template = Environment(autoescape=True, undefined=StrictUndefined).from_string(
        Path(__file__).with_name("report.html.jinja").read_text(encoding="utf-8")
    )
    measures = report.measures
    confusion = measures.confusion or Confusion()
    return template.render(
        report=report,
        version=__version__,
        figures=[(figure.name, figure.title, format_cell(figure.value)) for figure in measures.figures],
        tables=measures.tables,
        charts=measures.charts,
        colours=_COLOURS,
        matrix=_matrix(confusion),
        cells=_cells(confusion),
        worst=_worst_images(measures.mistakes),
        mistakes=len({mistake.result.item.image for mistake in measures.mistakes}),
        failures=list(report.failures.items())[:_MAX_PAGE_FAILURES],
        words=format_cell,
        zip=zip,
    ).encode()


def json_report(report: EvaluationReport) -> bytes:
    """Return the complete report without images as JSON. It lists the worst hundred images with mistakes."""
    measures = report.measures
    general = ("dataset", "format", "source", "images", "measured")
    plain = {
        "charioteer": __version__,
        "task": str(report.task),
        **{name: getattr(report, name) for name in general},
        "figures": {figure.name: figure.value for figure in measures.figures},
        "tables": [
            {"title": one.title, "rows": [dict(zip(one.columns, row, strict=True)) for row in one.rows]}
            for one in measures.tables
        ],
        "maite_evaluation": _checkmaite_rows(measures),
        "charts": measures.charts,
        "confusion": measures.confusion,
        "mistakes": [_mistake(mistake) for mistake in measures.mistakes[:_MAX_JSON_MISTAKES]],
        "failures": report.failures,
        "notes": report.notes,
    }
    return msgspec.json.format(msgspec.json.encode(plain))


def _checkmaite_rows(measures: Measures) -> list[dict[str, str | float | None]]:
    """Return rows of checkmaite's table ``maite_evaluation``, without ids: the figures, then those of each class."""

    def row(figure: str, value: float, class_name: str | None = None) -> dict[str, str | float | None]:
        return {
            "metric_id": f"charioteer_{figure}",
            "output_key": figure,
            "output_value": value,
            "scope": "overall" if class_name is None else "class",
            "class_name": class_name,
        }

    rows = [row(figure.name, figure.value) for figure in measures.figures if figure.value is not None]
    for classes in (one for one in measures.tables if one.columns[0] == "class" and one.columns[1] != "IoU"):
        for name, count, *values in classes.rows:
            # The last row may have several classes, without objects.
            if count:
                rows += [
                    row(_CLASS_FIGURES[column], value, str(name))
                    for column, value in zip(classes.columns[2:], values, strict=True)
                    if isinstance(value, float)
                ]
    return rows


def print_report(report: EvaluationReport, console: Console) -> None:
    """Print five figures, and the tables that the user asks for."""
    items = "questions" if report.task.returns == "texts" else "images"
    console.print(f"{printable(report.source)} on {printable(report.dataset)} ({report.format}): {report.task}")
    console.print(f"{report.measured} of {report.images} {items} measured")
    figures = table("figure", "value", "meaning")
    for figure in report.measures.figures[:_PRINTED_FIGURES]:
        figures.add_row(figure.name, format_cell(figure.value), printable(figure.title))
    console.print(figures)
    for asked in (asked for asked in report.measures.tables if asked.printed):
        rows = table(*asked.columns, title=asked.title)
        for row in asked.rows:
            rows.add_row(*(printable(format_cell(cell)) for cell in row))
        console.print(rows)
    for name, reason in list(report.failures.items())[:_MAX_PRINTED_FAILURES]:
        console.print(f"[red]not answered[/red] {printable(name)}: {printable(reason)}")
    for note in report.notes:
        console.print(f"- {printable(note)}")
    console.print("--html FILE writes all figures, classes and mistakes; --json FILE writes them for programs")


def format_cell(value: str | float | int | None) -> str:
    """Format a cell: four digits for a share, a dash for an undefined value."""
    if value is None:
        return "-"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _draw_mistake(mistake: Mistake) -> dict[str, Any] | None:
    """Return a small JPEG in base 64, its size in pixels, and the shapes over it; None if it cannot be shown."""
    item, predictions = mistake.result.item, mistake.result.predictions
    if item.width * item.height > _MAX_PIXELS:
        return None
    try:
        pixels = decode_image(item.image.read_bytes()).pixels
    except (OSError, InferenceError):
        return None
    height, width = pixels.shape[:2]
    outlines = [("missed", item.objects[index].label, _truth_rings(item.objects[index])) for index in mistake.missed]
    for kind, indexes in (("right", mistake.right), ("wrong", mistake.wrong)):
        found = [predictions[index] for index in indexes]
        outlines += [(kind, f"{one.label} {one.score:.2f}", one.outlines) for one in found]
    shapes = [_shape(kind, text, [ring for ring in rings if ring], width, height) for kind, text, rings in outlines]
    jpeg = pybase64.b64encode(small_jpeg(pixels, _SIDE, _QUALITY)).decode()
    return {"jpeg": jpeg, "width": width, "height": height, "shapes": [shape for shape in shapes if shape]}


def _worst_images(mistakes: Sequence[Mistake]) -> list[tuple[str, dict[str, Any] | None, list[str]]]:
    """Return the worst images, each once: its name, a drawing of its worst mistake, and all its mistakes."""
    by_image = defaultdict[Path, list[Mistake]](list)
    for mistake in mistakes:
        by_image[mistake.result.item.image].append(mistake)
    return [
        (worst.result.item.id, _draw_mistake(worst), [mistake.description for mistake in (worst, *others)])
        for worst, *others in list(by_image.values())[:_MAX_IMAGES]
    ]


def _matrix(confusion: Confusion) -> dict[str, Any] | None:
    """Return rows of cells, each with its count and its share of the row; labels without objects share a column."""
    true = _true_indexes(confusion)
    if not 1 <= len(true) <= _MAX_LABELS:
        return None
    labels, others = confusion.labels, [index for index in range(len(confusion.labels)) if index not in true]

    def folded(counts: Sequence[int]) -> list[int]:
        return [*(counts[index] for index in true), *([sum(counts[index] for index in others)] if others else [])]

    rows = [(labels[index], [*folded(confusion.counts[index]), *confusion.missed[index : index + 1]]) for index in true]
    if confusion.extra:
        rows.append(("nothing", folded(confusion.extra)))
    names = [labels[index] for index in true]
    columns = [*names, *(["other labels"] if others else []), *(["missed"] if confusion.missed else [])]
    shares = [(name, [(count, count / (sum(counts) or 1)) for count in counts]) for name, counts in rows]
    return {"columns": columns, "rows": shares, "objects": bool(confusion.missed)}


def _true_indexes(confusion: Confusion) -> list[int]:
    """Return the indexes of the labels that images or objects have."""
    missed = confusion.missed or (0,) * len(confusion.labels)
    return [index for index, counts in enumerate(confusion.counts) if sum(counts) + missed[index]]


def _cells(confusion: Confusion) -> list[tuple[str, str, int, str]]:
    """Return the largest cells off the diagonal: truth, prediction, count, and some images."""
    labels = confusion.labels
    cells = [
        (truth, predicted, count)
        for truth, counts in zip(labels, confusion.counts, strict=True)
        for predicted, count in zip(labels, counts, strict=True)
        if truth != predicted
    ]
    cells += [(label, "", count) for label, count in zip(labels, confusion.missed, strict=False)]
    if confusion.extra:
        cells += [("", labels[index], confusion.extra[index]) for index in _true_indexes(confusion)]
    largest = sorted((cell for cell in cells if cell[2]), key=lambda cell: -cell[2])[:_MAX_CELLS]
    return [
        (true or "nothing", guess or "missed", count, ", ".join(confusion.examples.get(f"{true} -> {guess}", ())))
        for true, guess, count in largest
    ]


def _mistake(mistake: Mistake) -> dict[str, Any]:
    objects, predictions = mistake.result.item.objects, mistake.result.predictions
    return {
        "id": mistake.result.item.id,
        "description": mistake.description,
        "missed": [{"label": objects[index].label, "location": objects[index].location} for index in mistake.missed],
        "wrong": [{"label": predictions[index].label, "score": predictions[index].score} for index in mistake.wrong],
    }


def _shape(kind: str, text: str, rings: Sequence[Ring], width: int, height: int) -> dict[str, Any] | None:
    if not rings:
        return None
    path = "".join("M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in ring) + "Z" for ring in rings)
    letter = width / _LETTERS
    if kind == "missed":
        # Place the label below, because a prediction of the same object has its label above.
        left, bottom = max(rings[0], key=lambda point: (point[1], -point[0]))
        y = bottom + 1.25 * letter
    else:
        left, top = min(rings[0], key=lambda point: (point[1], point[0]))
        y = top - letter / 4
    x = max(0.0, min(left, width - _LETTER_WIDTH * letter * len(text)))
    y = min(max(letter, y), height - letter / 4)
    return {"kind": kind, "path": path, "x": x, "y": y, "letter": letter, "text": text}


def _truth_rings(truth: LabelledObject) -> Sequence[Ring]:
    if truth.mask is not None:
        return [tuple(map(tuple, contour.tolist())) for contour in contours_of_mask(decode_mask(truth.mask))]
    return truth.outlines
